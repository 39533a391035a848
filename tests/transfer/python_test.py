#!/usr/bin/env python3
"""python/braid/transfer.py is the whole C interface: each function and constant, and what they do.

  python_test.py SOURCE-FOLDER LIBRARY
"""
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(sys.argv.pop(1))
os.environ["BRAID_TRANSFER_LIBRARY"] = sys.argv.pop(1)
sys.path.insert(0, str(ROOT / "python"))
from braid import transfer  # noqa: E402

SIZE, LIMIT_S = 1 << 20, 60
ARGUMENT, UNAVAILABLE = 1, 3  # of braid_status
EVERYTHING = transfer.MAY_READ | transfer.MAY_WRITE
HEADER = (ROOT / "include/braid/transfer_abi.h").read_text()


def opened(**options):
    return transfer.Transfer(listen="127.0.0.1:0", addresses=("127.0.0.1",), **options)


class Whole(unittest.TestCase):
    def test_every_function(self):
        functions = set(re.findall(r"BRAID_API[^;(]*\bbraid_transfer_(\w+)\(", HEADER))
        self.assertIn("take_ended", functions)
        of_the_module = {"open": transfer.Transfer, "last_error": transfer.Error, "last_cause": transfer.Error, "topology": transfer.topology,
                         "cause_name": transfer.cause_name}
        for name in functions - set(of_the_module):
            self.assertTrue(callable(getattr(transfer.Transfer, name, None)), name)

    def test_every_constant(self):
        constants = re.findall(r"\bBRAID_TRANSFER_(\w+) = (\d+)", HEADER)
        self.assertGreater(len(constants), 20)
        for name, value in [*constants, *re.findall(r"#define BRAID_TRANSFER_(\w+) (\d+)", HEADER)]:
            self.assertEqual(getattr(transfer, name), int(value), name)

    def test_every_field(self):
        for name, fields in re.findall(r"typedef struct braid_transfer_(\w+) \{(.*?)\}", HEADER, re.DOTALL):
            declared = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", fields, flags=re.DOTALL))
            structure = getattr(transfer, name.capitalize())
            self.assertEqual([field for field, _ in structure._fields_], declared, name)


class Moves(unittest.TestCase):
    def setUp(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)
        self.random = random.Random(seed)
        self.owners = [opened(), opened(nics=None, is_unpinned=True)]
        self.theirs = [owner.allocate_memory(SIZE, EVERYTHING)[0] for owner in self.owners]
        self.engine = opened()
        self.here, self.buffer = self.engine.allocate_memory(2 * SIZE, 0)
        self.segments = [self.engine.open_segment(owner.name(), LIMIT_S) for owner in self.owners]
        for engine in (self.engine, *self.owners):
            self.addCleanup(engine.close)

    def end(self, batch):
        self.assertTrue(self.engine.wait(batch, LIMIT_S))
        return self.engine.outcomes(batch)

    def test_a_batch_over_several_segments(self):
        data = [self.random.randbytes(SIZE) for _ in self.owners]
        requests = []
        for i, (segment, there) in enumerate(zip(self.segments, self.theirs)):
            ctypes.memmove(self.here + i * SIZE, data[i], SIZE)
            requests.append(transfer.request(segment, transfer.WRITE, self.here + i * SIZE, there, SIZE,
                                             urgency=transfer.URGENT, limit_s=LIMIT_S))
        requests.append(transfer.request(self.segments[0], transfer.READ, self.here, self.theirs[0] + 1, SIZE))
        batch = self.engine.submit_requests(requests, (self.segments[1], "name", b"\0payload"))
        self.assertEqual(self.end(batch), [transfer.DONE, transfer.DONE, transfer.OUTSIDE])
        self.assertEqual(self.engine.delivered_bytes(batch)[:2], [SIZE, SIZE])
        for there, written in zip(self.theirs, data):
            self.assertEqual(ctypes.string_at(there, SIZE), written)
        self.assertIsNone(self.owners[1].next_notification(), "a request of the batch has failed")
        batch = self.engine.submit_requests(requests[:2], (self.segments[1], "name", b"\0payload"))
        self.assertEqual(self.end(batch), [transfer.DONE, transfer.DONE])
        name, payload, sender = self.owners[1].next_notification(LIMIT_S)
        self.assertEqual((name, payload), ("name", b"\0payload"))
        self.assertEqual(sender, self.engine.name().rpartition("/")[2])

    def test_a_batch_in_one_call(self):
        data = self.random.randbytes(SIZE)
        ctypes.memmove(self.here, data, SIZE)
        halves = [self.here, self.here + SIZE // 2], [self.theirs[0], self.theirs[0] + SIZE // 2], [SIZE // 2] * 2
        causes = self.engine.submit_and_wait(self.segments[0], transfer.WRITE, *halves, LIMIT_S, ("all", b"there"),
                                             urgency=transfer.URGENT)
        self.assertEqual(causes, [transfer.DONE] * 2)
        self.assertEqual(ctypes.string_at(self.theirs[0], SIZE), data)
        self.assertEqual(self.owners[0].next_notification(LIMIT_S)[:2], ("all", b"there"))
        causes = self.engine.submit_and_wait(self.segments[0], transfer.READ, (self.here, self.here + 1),
                                             iter([self.theirs[0], self.theirs[0] + SIZE - 1]), [1, 2], LIMIT_S)
        self.assertEqual(causes, [transfer.DONE, transfer.OUTSIDE])
        self.assertEqual(self.engine.submit_and_wait(self.segments[0], transfer.READ, [], [], [], LIMIT_S), [])
        for wrong, error in (([-1], ValueError), ([None], TypeError), (["1"], TypeError), ([2**64], ValueError)):
            with self.assertRaisesRegex(error, r"there\[0\]"):
                self.engine.submit_and_wait(self.segments[0], transfer.READ, [self.here], wrong, [1], LIMIT_S)

    def test_after_a_call_that_was_too_late_the_memory_is_the_callers(self):
        self.engine.event_descriptor()  # from now on ended batches are told
        many = [[each] * 4096 for each in (self.here, self.theirs[0], SIZE)]  # they would take seconds
        causes = self.engine.submit_and_wait(self.segments[0], transfer.WRITE, *many, 0)
        self.assertIn(transfer.CANCELLED, causes)
        self.assertLessEqual(set(causes), {transfer.DONE, transfer.CANCELLED})
        written = ctypes.string_at(self.theirs[0], SIZE)
        ctypes.memset(self.here, 0xa5, SIZE)
        time.sleep(0.05)
        self.assertEqual(ctypes.string_at(self.theirs[0], SIZE), written, "it is still written from there")
        self.assertEqual(self.engine.take_ended(), [], "it is forgotten")

    def test_ctrl_c_cancels_what_is_under_way(self):
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, signal.default_int_handler))
        def interrupted(name, *arguments, call=self.engine._call):
            if name == "submit_and_wait":
                signal.setitimer(signal.ITIMER_REAL, 0.2)
            call(name, *arguments)
        many = [[each] * 65536 for each in (self.here, self.theirs[0], SIZE)]  # they would take seconds
        with mock.patch.object(self.engine, "_call", interrupted), self.assertRaises(KeyboardInterrupt):
            self.engine.submit_and_wait(self.segments[0], transfer.WRITE, *many, LIMIT_S)
        self.assertGreater(json.loads(self.engine.report())["braid_transfer"]["requests_failed"], 0)

    def test_what_changes_after_the_question_for_its_size_comes_whole(self):
        own, call, added = self.engine.open_segment(self.engine.name(), LIMIT_S), self.engine._call, []

        def ranges_after(change):
            def changing(name, *arguments):
                call(name, *arguments)
                if arguments[1] is None:
                    change()
            with mock.patch.object(self.engine, "_call", changing):
                return len(self.engine.ranges(own))

        self.assertEqual(ranges_after(lambda: added.append(self.engine.allocate_memory(64, 0)[1])), 2)
        self.assertEqual(ranges_after(lambda: [self.engine.unregister_memory(each) for each in added]), 1)
        texts = iter([b"short", b"long" * 2000, b"long" * 2000])

        def tell(_, __, buffer, size, needed):
            text = next(texts) + b"\0"
            needed._obj.value = len(text)
            if buffer is not None and size.value < len(text):
                raise transfer.Error("it is too small")
            ctypes.memmove(buffer, text, min(size.value, len(text)))

        with mock.patch.object(self.engine, "_call", tell):
            self.assertEqual(self.engine.report(), "long" * 2000)

    def test_deadlines_and_cancelling(self):
        many = [self.here] * 64, [self.theirs[0]] * 64, [SIZE] * 64
        batch = self.engine.submit(self.segments[0], transfer.WRITE, *many, limit_s=1e-6)
        self.assertIn(transfer.DEADLINE, self.end(batch))
        batch = self.engine.submit(self.segments[0], transfer.WRITE, *many)
        self.engine.cancel(batch)
        self.assertLessEqual(set(self.end(batch)), {transfer.DONE, transfer.CANCELLED})
        self.assertIn("dead", transfer.cause_name(transfer.DEADLINE))

    def test_a_deadline_that_has_passed_is_one(self):
        for limit_s in (-1, 1e-9):
            one = transfer.request(self.segments[0], transfer.WRITE, self.here, self.theirs[0], SIZE, limit_s=limit_s)
            self.assertEqual(one.limit_us, 1)
            batch = self.engine.submit(self.segments[0], transfer.WRITE, [self.here] * 64, [self.theirs[0]] * 64,
                                       [SIZE] * 64, limit_s=limit_s)
            self.assertIn(transfer.DEADLINE, self.end(batch))
        self.assertEqual(transfer.request(0, transfer.READ, 0, 0, 0).limit_us, 0)

    def test_whoever_waits_for_less_than_no_time_does_not_wait(self):
        handed = []
        with mock.patch.object(self.engine, "_call", lambda name, *arguments: handed.append((name, arguments))):
            self.engine.unregister_memory(self.buffer, -1)
            for limit_s in (-1, 1e-9):
                self.assertIsNone(self.engine.next_notification(limit_s))
                self.assertFalse(self.engine.wait(1, limit_s))
        limits = [arguments[name != "next_notification"].value for name, arguments in handed]
        self.assertEqual(limits, [0, 0, 0, 1, 1])

    def test_the_event_descriptor(self):
        descriptor = self.engine.event_descriptor()
        self.assertEqual(self.engine.take_ended(), [])
        batches = {self.engine.submit(self.segments[0], transfer.READ, [self.here], [self.theirs[0]], [SIZE])
                   for _ in range(3)}
        taken = []
        while len(taken) < 3:
            self.assertEqual(select.select([descriptor], [], [], LIMIT_S)[0], [descriptor])
            taken += self.engine.take_ended(2)
        self.assertEqual(set(taken), batches)
        self.assertEqual(select.select([descriptor], [], [], 0)[0], [])

    def test_names_that_are_no_text_come_as_they_were_sent(self):
        name = b"caf\xe9".decode(errors="surrogateescape")
        one = transfer.request(self.segments[0], transfer.WRITE, self.here, self.theirs[0], 64)
        self.assertEqual(self.end(self.engine.submit_requests([one], (self.segments[0], name, b"1"))), [transfer.DONE])
        self.assertEqual(self.owners[0].next_notification(LIMIT_S)[:2], (name, b"1"))
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).write_bytes(b"1")
            self.owners[0].export_folder("files", folder, transfer.MAY_READ)
            file = self.engine.open_file(self.segments[0], f"files/{name}", transfer.MAY_READ, LIMIT_S)
            self.assertEqual(self.engine.file_bytes(file), 1)

    def test_closing_ends_the_calls_of_other_threads_first(self):
        engine, ends = opened(), []

        def take():
            try:
                while True:
                    engine.next_notification(LIMIT_S)
            except transfer.Error as error:
                ends.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        engine.close()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertLess(time.monotonic() - begun, LIMIT_S / 2)
        self.assertEqual(len(ends), len(threads))
        self.assertTrue(all("closed" in end for end in ends), ends)
        with self.assertRaises(transfer.Error):
            engine.name()

    def test_a_signals_handler_closes_what_its_thread_calls(self):
        engine = opened()
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: engine.close()))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaises(transfer.Error):
            engine.next_notification(LIMIT_S)
        with self.assertRaisesRegex(transfer.Error, "closed"):
            engine.name()

    def test_closing_that_is_interrupted_is_done_again(self):
        engine, has_begun, is_over = opened(), threading.Event(), threading.Event()
        self.addCleanup(is_over.set)

        def long_call(*_):
            has_begun.set()
            is_over.wait(LIMIT_S)

        kept = set()
        engine.keep(kept)
        name = engine.name()
        with mock.patch.object(transfer, "_call", long_call):
            caller = threading.Thread(target=engine._call, args=("name",))
            caller.start()
            self.assertTrue(has_begun.wait(LIMIT_S))
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, signal.default_int_handler))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaises(KeyboardInterrupt):
            engine.close()
        self.assertIn(kept, engine._handle.kept)
        self.engine.close_segment(self.engine.open_segment(name, LIMIT_S))  # it is there yet
        is_over.set()
        engine.close()
        caller.join(LIMIT_S)
        with self.assertRaises(transfer.Error):
            self.engine.open_segment(name, 1)

    def test_a_child_cannot_use_it_and_ends(self):
        child = os.fork()
        if child == 0:
            try:
                self.engine.name()
                os._exit(1)
            except transfer.Error as error:
                self.engine.close()
                os._exit(0 if "parent" in str(error) else 2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_files_have_a_size(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "file").write_bytes(bytes(range(200)))
            self.owners[0].export_folder("files", folder, transfer.MAY_READ)
            file = self.engine.open_file(self.segments[0], "files/file", transfer.MAY_READ, LIMIT_S)
            self.assertEqual(self.engine.file_bytes(file), 200)
            batch = self.engine.submit(file, transfer.READ, [self.here, self.here], [0, 100], [200, 200])
            self.assertEqual(self.end(batch), [transfer.DONE, transfer.OUTSIDE])
            self.engine.close_segment(file)
            with self.assertRaises(transfer.Error):
                self.engine.open_file(self.segments[0], "files/other", transfer.MAY_READ, LIMIT_S)

    def test_it_explains(self):
        ways = json.loads(self.engine.explain(self.segments[0], SIZE, form=transfer.JSON))["ways"]
        self.assertTrue(any(way["is_chosen"] for way in ways))
        one = transfer.request(self.segments[0], transfer.READ, self.here, self.theirs[0], SIZE)
        self.assertEqual(len(json.loads(self.engine.explain_request(one, transfer.JSON))["ways"]), len(ways))
        self.assertTrue(self.engine.explain_request(one))
        self.assertIn("braid_transfer_slices_total", self.engine.report(transfer.PROMETHEUS))

    def test_memory_is_given_back(self):
        memory = mmap.mmap(-1, SIZE)
        own = self.engine.register_memory(ctypes.addressof(ctypes.c_char.from_buffer(memory)), SIZE, EVERYTHING)
        self.engine.unregister_memory(own, LIMIT_S)
        self.engine.unregister_memory(self.buffer, LIMIT_S)
        batch = self.engine.submit(self.segments[0], transfer.READ, [self.here], [self.theirs[0]], [SIZE])
        self.assertEqual(self.end(batch), [transfer.LOCAL_MEMORY])
        with self.assertRaises(transfer.Error):
            self.engine.wait(batch + 1000, 0)

    def test_errors_have_a_cause(self):
        with self.assertRaises(transfer.Error) as unknown:
            self.engine.open_segment("nobody-has-this-name", 5)
        self.assertEqual(unknown.exception.cause, transfer.NO_SEGMENT)
        with self.assertRaises(transfer.Error) as file:
            self.engine.open_file(self.segments[0], "nothing/there", transfer.MAY_READ, LIMIT_S)
        self.assertEqual(file.exception.cause, transfer.NO_FILE)
        with self.assertRaises(transfer.Error) as none:
            self.engine.open_segment("no name", 5)
        self.assertEqual(none.exception.cause, transfer.NO_CAUSE)
        self.assertEqual(unknown.exception.status, UNAVAILABLE)
        with self.assertRaises(transfer.Error) as batch:
            self.engine.wait(1 << 40, 0)
        self.assertEqual(batch.exception.status, ARGUMENT)
        with self.assertRaises(transfer.Error) as store:
            opened(store="redis://127.0.0.1:1", name="x")
        self.assertEqual(store.exception.cause, transfer.NO_STORE)

    def test_lists_of_one_batch_have_one_length(self):
        one, two = [self.here], [self.theirs[0]] * 2
        with self.assertRaisesRegex(ValueError, "local has 1, there 2, sizes 1"):
            self.engine.submit(self.segments[0], transfer.WRITE, one, two, [SIZE])
        with self.assertRaisesRegex(ValueError, "sizes 2"):
            self.engine.submit(self.segments[0], transfer.WRITE, one, two[:1], [SIZE, SIZE])

    def test_a_text_is_no_list_of_texts(self):
        for options in ({"addresses": "127.0.0.1"}, {"providers": "shm"}):
            with self.assertRaisesRegex(TypeError, r"write \["):
                transfer.Transfer(listen="127.0.0.1:0", **options)
        with self.assertRaises(TypeError):
            transfer.topology("mlx5_0")

    def test_arguments_that_the_library_would_misread_are_named(self):
        engine, segment, name = self.engine, self.segments[0], self.owners[0].name()
        one = transfer.request(segment, transfer.READ, self.here, self.theirs[0], 64)
        mistakes = [
            (ValueError, "name is .*NUL", lambda: engine.open_segment(name + "\0b")),
            (TypeError, "name is None", lambda: engine.open_segment(None)),
            (TypeError, "limit_s is None", lambda: engine.open_segment(name, None)),
            (ValueError, "limit_s is nan", lambda: engine.wait(1, float("nan"))),
            (TypeError, "limit_s is None", lambda: engine.next_notification(None)),
            (ValueError, "folder is .*NUL", lambda: engine.export_folder("files", "/tmp\0b", transfer.MAY_READ)),
            (ValueError, "path is .*NUL", lambda: engine.open_file(segment, "files/a\0b", transfer.MAY_READ)),
            (TypeError, "rights is None", lambda: engine.allocate_memory(SIZE, None)),
            (ValueError, f"segment is {segment + 2**64}", lambda: engine.ranges(segment + 2**64)),
            (TypeError, "address is None", lambda: engine.register_memory(None, SIZE, EVERYTHING)),
            (ValueError, "size_bytes is -1", lambda: engine.register_memory(self.here, -1, EVERYTHING)),
            (TypeError, "batch is None", lambda: engine.outcomes(None)),
            (TypeError, "count_max is None", lambda: engine.take_ended(None)),
            (TypeError, r"local\[1\] is None",
             lambda: engine.submit(segment, transfer.READ, [self.here, None], self.theirs, [64, 64])),
            (ValueError, r"sizes\[0\] is",
             lambda: engine.submit(segment, transfer.READ, [self.here], self.theirs[:1], [2**64 + 64])),
            (TypeError, "local is None", lambda: transfer.request(segment, transfer.READ, None, self.theirs[0], 64)),
            (TypeError, r"requests\[1\] is None", lambda: engine.submit_requests([one, None])),
            (TypeError, "notification is .*name, bytes", lambda: engine.submit_requests([one], ("name", b""))),
            (ValueError, "name is .*NUL", lambda: engine.submit_requests([one], (segment, "a\0b", b""))),
            (TypeError, "bytes is 'text'", lambda: engine.submit_requests([one], (segment, "name", "text"))),
            (TypeError, "one is None", lambda: engine.explain_request(None)),
            (TypeError, "cause is None", lambda: transfer.cause_name(None)),
            (TypeError, "devices is None", lambda: transfer.topology(None)),
            (TypeError, "addresses is None", lambda: transfer.Transfer(addresses=None)),
            (TypeError, "listen is 4750", lambda: transfer.Transfer(listen=4750)),
            (ValueError, "store is .*NUL", lambda: opened(store="redis://127.0.0.1:1\0")),
            (TypeError, "gpu_memory is None", lambda: opened(gpu_memory=None))]
        for kind, words, call in mistakes:
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                call()

    def test_one_may_wait_for_ever(self):
        segment = self.engine.open_segment(self.owners[0].name(), float("inf"))
        batch = self.engine.submit(segment, transfer.READ, [self.here], [self.theirs[0]], [64])
        self.assertTrue(self.engine.wait(batch, float("inf")))

    def test_with_closes_it(self):
        with opened() as engine:
            self.assertTrue(engine.name())
        with self.assertRaisesRegex(transfer.Error, "closed"):
            engine.name()

    def test_nics_that_are_not_there(self):
        with self.assertRaises(transfer.Error):
            transfer.Transfer(nics="no-such-nic0")


class Door(unittest.TestCase):
    def test_the_wheels_other_modules_are_found_behind_it(self):
        with tempfile.TemporaryDirectory() as wheel:
            package = pathlib.Path(wheel) / "mooncake"
            package.mkdir()
            for module in ("__init__", "engine", "store"):
                (package / f"{module}.py").write_text("WHOSE = 'the wheel'\n")
            environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "python/door"), wheel]))
            program = "import mooncake.store, mooncake.engine; print(mooncake.store.WHOSE, mooncake.engine.__file__)"
            done = subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=LIMIT_S,
                                  capture_output=True, text=True)
            self.assertEqual((done.stdout, done.stderr), (f"the wheel {ROOT / 'python/door/mooncake/engine.py'}\n", ""))


class Exit(unittest.TestCase):
    def test_who_closes_while_others_write_its_files_ends_well(self):
        program = '''
import sys
from braid import transfer
engine = transfer.Transfer(listen="127.0.0.1:0", addresses=("127.0.0.1",), providers=("tcp;ofi_rxm",))
engine.export_folder("folder", sys.argv[1], transfer.MAY_WRITE)
print(engine.name(), flush=True)
sys.stdin.readline()
engine.close()
'''
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
        for turn in range(4):
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as writers:
                owner = subprocess.Popen([sys.executable, "-c", program, folder], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                name = owner.stdout.readline().strip()
                for number in range(4):
                    engine = writers.enter_context(opened(providers=("tcp;ofi_rxm",)))
                    here = engine.allocate_memory(16 * SIZE, 0)[0]
                    segment = engine.open_segment(name, LIMIT_S)
                    file = engine.open_file(segment, f"folder/{number}", transfer.MAY_WRITE, LIMIT_S)
                    offsets = range(0, 16 * SIZE, SIZE)
                    for _ in range(4):
                        engine.submit(file, transfer.WRITE, [here + at for at in offsets], list(offsets), [SIZE] * 16)
                time.sleep(0.01 * turn)
                owner.communicate("close\n", timeout=LIMIT_S)
                self.assertEqual(owner.returncode, 0)

    def test_threads_that_still_call_do_not_end_it_otherwise(self):
        program = '''
import threading, time
from braid import transfer
engine = transfer.Transfer(listen="127.0.0.1:0", addresses=("127.0.0.1",))
def call(what):
    try:
        while True:
            what()
    except transfer.Error:
        pass
for what in (engine.report, engine.name, lambda: engine.next_notification(60), lambda: engine.next_notification(0.001)):
    threading.Thread(target=call, args=(what,), daemon=True).start()
time.sleep(0.2)
'''
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
        begun = time.monotonic()
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=LIMIT_S,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(time.monotonic() - begun, LIMIT_S)


if __name__ == "__main__":
    unittest.main()
