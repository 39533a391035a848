#!/usr/bin/env python3
"""python/braid/kv.py drives libbraid_kv on the emulated server: the server of examples/rotate_torch.py, with memory of
the driver's instead of PyTorch's tensors.

  python_test.py SOURCE-FOLDER
"""
import ctypes
import gc
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop(1))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
from braid import _library as libraries, kv  # noqa: E402
import rotate_torch as rotate  # noqa: E402

LAYERS, LAYER_SLOT_BYTES = 3, rotate.BLOCK_TOKENS * 8


class Driver:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        device = ctypes.c_int()
        self.must("cuInit", 0)
        self.must("cuDeviceGet", ctypes.byref(device), 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.must("cuCtxSetCurrent", self.context)
        self.must("cuStreamCreate", ctypes.byref(self.stream), 1)  # CU_STREAM_NON_BLOCKING

    def must(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def allocate(self, size_bytes):
        address = ctypes.c_uint64()
        self.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address.value


class WordsModel:
    """Writes a word for each token and layer, and makes the next token of all words that it reads back."""

    def __init__(self, driver, slots):
        self.driver, self.stream, self.context = driver, driver.stream.value, kv.current_context()
        self.layers = [driver.allocate(slots * LAYER_SLOT_BYTES) for _ in range(LAYERS)]
        self.base, self.segments = kv.segments_of([(layer, LAYER_SLOT_BYTES) for layer in self.layers])

    def step(self, batch):
        return [self.follow(*one) for one in batch]

    def follow(self, tokens, cached, slots):
        words = [[(token + 1) * 1_000_003 * (layer + 1) + position for position, token in enumerate(tokens)]
                 for layer in range(LAYERS)]
        read = []
        for address, line in zip(self.layers, words):
            place = lambda position: ctypes.c_uint64(  # noqa: E731
                address + slots[position // rotate.BLOCK_TOKENS] * LAYER_SLOT_BYTES + position % rotate.BLOCK_TOKENS * 8)
            size, there = ctypes.c_size_t(8), (ctypes.c_uint64 * len(tokens))()
            for position in range(cached, len(tokens)):
                word = ctypes.c_uint64(line[position])
                self.driver.must("cuMemcpyHtoDAsync_v2", place(position), ctypes.byref(word), size, self.driver.stream)
                self.driver.must("cuStreamSynchronize", self.driver.stream)
            for position in range(len(tokens)):
                self.driver.must("cuMemcpyDtoHAsync_v2", ctypes.byref(there, position * 8), place(position), size,
                                 self.driver.stream)
            self.driver.must("cuStreamSynchronize", self.driver.stream)
            read.append(list(there))
        assert read == words, "a block came back as another one"
        return sum(map(sum, read)) % rotate.VOCABULARY


class PythonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()

    def serve(self, at_once, engine=None, mover=kv.BY_DRIVER, count=5):
        prompt, output = 20, 30
        slots = rotate.slots_for(at_once, prompt + output)
        requests = rotate.new_requests(count, prompt, output)
        server = rotate.Server(WordsModel(self.driver, slots), requests, at_once, 3, slots, engine, mover)
        statistics = server.serve()
        self.assertEqual(statistics.gpu_slots_free, slots)
        return server, statistics, [request.tokens for request in requests]

    def test_requests_that_take_turns_get_the_tokens_of_those_that_fit(self):
        _, _, expected = self.serve(5)
        with kv.Engine() as engine:
            for copies, mover in ((None, kv.BY_DRIVER), (engine, kv.BY_DRIVER), (engine, kv.BY_COPY_ENGINES)):
                server, statistics, served = self.serve(2, copies, mover)
                self.assertEqual(served, expected)
                self.assertGreater(server.down_bytes, 0)
                self.assertGreater(server.up_bytes, 0)
                if mover == kv.BY_COPY_ENGINES:  # so few bytes may go by the driver alone
                    self.assertGreater(statistics.native_bytes, 0)
                else:
                    self.assertEqual(statistics.accelerated_bytes > 0, copies is not None)

    def test_a_request_comes_back_in_the_plan_that_it_leaves_by(self):
        _, _, expected = self.serve(3, count=3)
        _, _, served = self.serve(2, count=3)
        self.assertEqual(served, expected)

    def test_a_second_thread_finds_the_types_of_results(self):
        found = []
        second = threading.Thread(target=lambda: found.append(kv._library().braid_kv_begin_step.restype))

        class Slow(ctypes.CDLL):
            def __getattr__(self, name):
                if second.ident is None:
                    second.start()
                    second.join(0.2)
                return super().__getattr__(name)

        with mock.patch.object(kv, "_loaded", None), mock.patch.object(kv.ctypes, "CDLL", Slow):
            kv._library()
            second.join()
        self.assertEqual(found, [ctypes.c_uint64])

    def test_the_engine_is_asked_to_spare_the_gpu(self):
        with kv.Engine() as engine:
            braid = ctypes.CDLL(libraries.find(""))
            for mover, name in ((kv.BY_DRIVER, "braid_copy_batch"), (kv.BY_COPY_ENGINES, "braid_copy_batch_sparing")):
                self.assertEqual(engine.options(mover)[1],
                                 ctypes.cast(getattr(braid, name), ctypes.c_void_p).value)

    def test_a_leader_and_a_worker(self):
        model = WordsModel(self.driver, 2)
        gpu = kv.Rank(model.context, model.base, model.stream)
        with kv.Rotation(model.segments, 2, 4, [], remote_ranks=1, report_deadline_ms=3_600_000) as leader, \
                kv.Worker(model.segments, 2, 4, gpu, 0) as worker:
            leader.begin_step()
            block = leader.create()
            leader.apply(kv.SEAL, [block])
            self.assertEqual(worker.apply(leader.take_commands(0)), kv.Applied(1, 0))
            model.follow([5, 6], 0, [leader.find(block).gpu_slot])
            worker.end_step()
            leader.end_step()
            leader.apply(kv.END_USE, [block])
            leader.submit(evict=[block])
            commands = leader.take_commands(0)
            with self.assertRaisesRegex(kv.Error, "bytes came as"):
                worker.apply(commands[:-1])
            self.assertEqual(worker.apply(commands), kv.Applied(0, 0))
            with self.assertRaisesRegex(kv.Error, "have been carried out"):
                worker.apply(commands)
            worker.wait()
            leader.give_report(0, worker.report())
            self.assertEqual(leader.poll(), kv.Report([block], [], [], ""))
            found = leader.find(block)
            self.assertEqual(found.state, kv.HOST_ONLY)
            first = ctypes.cast(worker.host_block(found.host_slot), ctypes.POINTER(ctypes.c_uint64))
            self.assertEqual(first[0], 6 * 1_000_003)
            self.assertEqual(leader.take_commands(0), b"")

    def test_every_constant(self):
        header = (ROOT / "include/braid/kv_abi.h").read_text()
        constants = re.findall(r"\bBRAID_KV_(\w+) = (\d+)", header)
        self.assertGreater(len(constants), 30)
        for name, value in constants:
            self.assertEqual(getattr(kv, name), int(value), name)

    def test_what_was_submitted_before_a_copy_failed_is_told(self):
        model = WordsModel(self.driver, 2)
        with kv.Rotation(model.segments, 2, 4, [kv.Rank(model.context, model.base, model.stream)]) as cache:
            cache.begin_step()
            blocks = [cache.create(), cache.create()]
            cache.apply(kv.SEAL, blocks[:1])
            cache.end_step()
            library = kv._library()

            class Failing:
                def __getattr__(self, name):
                    return getattr(library, name)

                def braid_kv_submit(self, *arguments):
                    library.braid_kv_submit(*arguments)
                    return 4  # BRAID_ERROR_CUDA

            with mock.patch.object(kv, "_library", Failing), self.assertRaises(kv.Error) as failed:
                cache.submit(evict=[12345])
            self.assertEqual(failed.exception.status, 4)
            block_bytes = cache.statistics().block_bytes
            self.assertEqual(failed.exception.submitted,
                             kv.Submitted(block_bytes, 0, 0, 0, [(12345, kv.UNKNOWN_BLOCK)]))
            self.assertIn("no such block", kv.refusal_words(kv.UNKNOWN_BLOCK))
            cache.wait()
        with self.assertRaises(kv.Error) as wrong:
            kv.segments(kv.Model(0, 1, 64, 2, 16), kv.BLOCK_FIRST, 8)
        self.assertEqual((wrong.exception.status, wrong.exception.submitted), (1, None))

    def test_the_example_finds_the_module_where_it_is_installed(self):
        with tempfile.TemporaryDirectory() as prefix:
            share = pathlib.Path(prefix) / "share"
            shutil.copytree(ROOT / "python", share / "braid/python")
            examples = share / "doc/braid/examples"
            examples.mkdir(parents=True)
            shutil.copy(ROOT / "examples/rotate_torch.py", examples)
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            done = subprocess.run([sys.executable, examples / "rotate_torch.py", "--help"], env=environment, check=False,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_arguments_that_the_library_would_misread_are_named(self):
        model = WordsModel(self.driver, 2)
        gpu = kv.Rank(model.context, model.base, model.stream)
        of_tokens = kv.Model(2, 1, 64, 2, 16)

        def rotation(segments=model.segments, slots=2, ranks=(gpu,), **more):
            return kv.Rotation(segments, slots, 4, ranks, **more)

        with rotation() as cache:
            mistakes = [
                (TypeError, "model is None", lambda: kv.segments(None, kv.BLOCK_FIRST, 8)),
                (ValueError, "gpu_slots is 4294967304", lambda: kv.segments(of_tokens, kv.BLOCK_FIRST, 2**32 + 8)),
                (ValueError, "layers is 4294967298", lambda: kv.Model(2**32 + 2, 1, 64, 2, 16)),
                (TypeError, "context is None", lambda: kv.Rank(None, model.base, model.stream)),
                (TypeError, "cache is None", lambda: kv.Rank(model.context, cache=None)),
                (ValueError, "tensors is ", lambda: kv.segments_of([])),
                (TypeError, r"tensors\[0\] is 5", lambda: kv.segments_of([5])),
                (TypeError, "segments is None", lambda: rotation(segments=None)),
                (TypeError, r"ranks\[0\] is None", lambda: rotation(ranks=[None])),
                (ValueError, "gpu_slots is -1", lambda: rotation(slots=-1)),
                (TypeError, "engine is 'all'", lambda: rotation(engine="all")),
                (TypeError, "mover is None", lambda: rotation(mover=None)),
                (TypeError, "gpu is None", lambda: kv.Worker(model.segments, 2, 4, None, 0)),
                (TypeError, "operation is None", lambda: cache.apply(None, [])),
                (TypeError, "blocks is None", lambda: cache.apply(kv.SEAL, None)),
                (TypeError, r"blocks\[0\] is None", lambda: cache.gpu_slots([None])),
                (ValueError, r"evict\[0\] is", lambda: cache.submit(evict=[2**64])),
                (TypeError, "writes_through is None", lambda: cache.submit(writes_through=None)),
                (TypeError, "down_bytes is None", lambda: cache.submit(down_bytes=None)),
                (TypeError, "block is None", lambda: cache.find(None)),
                (TypeError, "rank is None", lambda: cache.host_block(None, 1)),
                (TypeError, "report is 'text'", lambda: cache.give_report(0, "text")),
                (TypeError, "refusal is None", lambda: kv.refusal_words(None))]
            for kind, words, call in mistakes:
                with self.subTest(words), self.assertRaisesRegex(kind, words):
                    call()

    def test_what_is_closed_says_so(self):
        model = WordsModel(self.driver, 2)
        gpu = kv.Rank(model.context, model.base, model.stream)
        with kv.Rotation(model.segments, 2, 4, [gpu]) as cache, kv.Worker(model.segments, 2, 4, gpu, 0) as worker:
            pass
        calls = [cache.create, lambda: cache.apply(kv.SEAL, [1]), cache.begin_step, cache.end_step, cache.submit,
                 cache.poll, cache.wait, lambda: cache.find(1), lambda: cache.gpu_slots([1]),
                 lambda: cache.host_block(0, 1), cache.statistics, lambda: cache.take_commands(0),
                 lambda: cache.give_report(0, b"")]
        for kind, closed in (("Rotation", calls), ("Worker", [lambda: worker.apply(b""), worker.end_step,
                                                              worker.report, worker.wait,
                                                              lambda: worker.host_block(0)])):
            for call in closed:
                with self.assertRaisesRegex(kv.Error, f"this {kind} is closed") as failed:
                    call()
                self.assertNotIsInstance(failed.exception, kv.Refused)
                self.assertEqual(failed.exception.status, 1)
        cache.close()
        worker.close()

    def test_what_nobody_refers_to_gives_its_pinned_memory_back(self):
        model, host_slots = WordsModel(self.driver, 2), 200_000
        gpu = kv.Rank(model.context, model.base, model.stream)
        pool_kb = host_slots * LAYERS * LAYER_SLOT_BYTES // 1024

        def mapped_kb():
            return int(re.search(r"VmSize:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text()).group(1))

        for make in (lambda: kv.Rotation(model.segments, 2, host_slots, [gpu]),
                     lambda: kv.Worker(model.segments, 2, host_slots, gpu, 0)):
            make().close()  # what is made once
            before = mapped_kb()
            for _ in range(4):
                make()
            gc.collect()
            self.assertLess(mapped_kb(), before + pool_kb)

    def test_an_engine_outlives_the_rotation_that_is_dropped_with_it(self):
        model, closed = WordsModel(self.driver, 2), []

        def told(name, close):
            return lambda handle: (closed.append(name), close(handle))

        engine = kv.Engine()
        cache = kv.Rotation(model.segments, 2, 4, [kv.Rank(model.context, model.base, model.stream)], engine)
        for each in (engine, cache):
            each._handle._close = told(type(each).__name__, each._handle._close)
        engine.itself, cache.itself = engine, cache  # only the collector frees them, in an order of its own
        del each, engine, cache
        gc.collect()
        gc.collect()  # until the rotation was closed, it referred to the engine
        self.assertEqual(closed, ["Rotation", "Engine"])

    def test_what_is_open_is_closed_when_the_interpreter_ends_and_not_by_a_child(self):
        script = f"""
import os, sys
sys.argv[1:] = [{str(ROOT)!r}]
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import python_test as test
from braid import kv
model = test.WordsModel(test.Driver(), 2)
engine = kv.Engine()
cache = kv.Rotation(model.segments, 2, 4, [test.kv.Rank(model.context, model.base, model.stream)], engine)
for each in engine, cache:
    def told(handle, close=each._handle._close, name=type(each).__name__):
        close(handle)
        print("closed", name, flush=True)
    each._handle._close = told
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
cache.begin_step()
print("steps", flush=True)
"""
        done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "steps\nclosed Rotation\nclosed Engine\n"), done.stderr)

    def test_a_child_cannot_begin_a_step_of_its_parent(self):
        model = WordsModel(self.driver, 2)
        with kv.Rotation(model.segments, 2, 4, [kv.Rank(model.context, model.base, model.stream)]) as cache:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    cache.begin_step()
                except kv.Error as error:
                    code = 0 if "parent" in str(error) else 2
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(cache.begin_step(), 1)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(kv.Error, "layers is 0"):
            kv.segments(kv.Model(0, 1, 64, 2, 16), kv.BLOCK_FIRST, 8)
        model = WordsModel(self.driver, 2)
        with self.assertRaisesRegex(kv.Error, "host_slots"):
            kv.Rotation(model.segments, 2, 0, [kv.Rank(model.context, model.base, model.stream)])
        with self.assertRaisesRegex(kv.Error, "mover is 7"):
            kv.Rotation(model.segments, 2, 4, [kv.Rank(model.context, model.base, model.stream)], mover=7)
        with kv.Rotation(model.segments, 2, 4, [kv.Rank(model.context, model.base, model.stream)]) as cache:
            cache.begin_step()
            blocks = [cache.create(), cache.create()]
            with self.assertRaisesRegex(kv.Refused, "no slot of the GPU") as full:
                cache.create()
            self.assertEqual(full.exception.refusal, kv.NO_GPU_SLOT)
            cache.apply(kv.SEAL, blocks[:1])
            with self.assertRaises(kv.Refused) as refused:
                cache.apply(kv.SEAL, blocks[::-1])
            self.assertEqual(refused.exception.done, 1)
            cache.end_step()
            self.assertEqual(cache.find(blocks[0]).state, kv.SEALED)
            self.assertEqual(sorted(cache.gpu_slots(blocks)), [0, 1])
            self.assertEqual(cache.gpu_slots(blocks[::-1]), [cache.find(block).gpu_slot for block in blocks[::-1]])
            self.assertEqual(cache.gpu_slots([]), [])
            with self.assertRaisesRegex(kv.Error, "there is no block 77"):
                cache.gpu_slots([blocks[0], 77])
            cache.submit()
            cache.wait()
            self.assertEqual(cache.poll().synced, blocks)
            self.assertIsNotNone(cache.host_block(0, blocks[0]))


if __name__ == "__main__":
    unittest.main()
