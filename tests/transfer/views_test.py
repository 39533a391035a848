#!/usr/bin/env python3
"""`braid segments` and `braid rails`: shown again and again, and as JSON; a plot of tebench.

  views_test.py BRAID FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BRAID, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


def run(environment, *words):
    done = subprocess.run([BRAID, *words], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        environment = dict(os.environ, BRAID_RUNTIME_DIR=folder)
        shown = pathlib.Path(folder) / "view.json"
        view = ("--json", str(shown))

        def seen():
            return json.loads(shown.read_text())

        target = subprocess.Popen([BRAID, "serve", "--name", "shown", "--address", "127.0.0.1", "--memory", "16M"],
                                  env=environment, stdout=subprocess.PIPE, text=True)
        try:
            target.stdout.readline()
            target.stdout.readline()
            run(environment, "segments", *view)
            assert seen() == [{"name": "shown", "address": f"{folder}/shown", "listens": True, "state": "listens"}], seen()
            text = run(environment, "segments", "shown", *view, "--watch", "--interval", "0.1", "--count", "3")
            assert text.count("incarnation") == 3, text
            assert "\x1b" not in text, "not on a terminal"
            owner = seen()
            assert [each["size_bytes"] for each in owner["ranges"]] == [16 << 20], owner
            assert owner["ranges"][0]["peers_may"] == "read, write", owner
            run(environment, "rails", "--explain", "--address", "127.0.0.1", "shown", *view)
            ways = seen()["ways"]
            assert ways and any(way["is_chosen"] for way in ways), ways
            done = subprocess.run([BRAID, "segments", "nobody"], env=environment, capture_output=True, text=True,
                                  timeout=120, check=False)
            assert done.returncode == 1 and done.stderr.rstrip().endswith("[no such segment]"), done
            plot = FOLDER / "views.svg"
            run(environment, "rails", "shown", *view)
            assert seen()["ways"] == [], "it reaches nobody by itself"
            words = [BRAID, "tebench", "--target_seg_name", "shown", "--address", "127.0.0.1", "--provider",
                     "tcp;ofi_rxm", "--total_buffer_size", "8M", "--start_block_size", "1M", "--max_block_size", "1M",
                     "--duration", "4", "--plot", str(plot)]

            def bench_is_seen():
                """Whether a look at the rails, while the bench ran, has shown what it moved."""
                is_seen, served = False, 0
                with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as bench:
                    while bench.poll() is None:
                        run(environment, "rails", "shown", *view)
                        served = max(served, *(link["served_bytes"] for link in seen()["links"]), 0)
                        run(environment, "rails", "--address", "127.0.0.1", "--provider", "tcp;ofi_rxm", *view)
                        is_seen = is_seen or any(engine["process"] == bench.pid and engine["gbps"] > 0
                                                 for engine in seen()[0]["engines"])
                    assert bench.returncode == 0
                return is_seen and served > 0

            # On a busy machine no look may end before the bench does.
            assert any(bench_is_seen() for _ in range(5)), "nobody saw what the bench moved"
            svg = plot.read_text()
            assert svg.startswith("<svg") and "tcp;ofi_rxm 127.0.0.1 to 127.0.0.1" in svg, svg[:300]
        finally:
            target.kill()
            target.wait()
    print("views are right")


if __name__ == "__main__":
    main()
