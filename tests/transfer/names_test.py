#!/usr/bin/env python3
"""`braid segments` without a name: the names of this host, and those of real stores.

  names_test.py BRAID
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BRAID = sys.argv[1]
PASSWORD = "hunter2@"
ENCODED = "hunter2%40"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def server_of(scheme, port, folder):
    if scheme == "redis":
        return ["redis-server", "--port", str(port), "--save", "", "--loglevel", "warning", "--requirepass", PASSWORD]
    here, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return ["etcd", f"--data-dir={folder}", f"--listen-client-urls={here}", f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--log-level=error", "--logger=zap"]


def eventually(is_so, what):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


class Host:
    """Its engines and those of other hosts share no folder for sockets."""

    def __init__(self, folder, store):
        os.makedirs(folder, mode=0o700)
        self.environment = dict(os.environ, BRAID_RUNTIME_DIR=str(folder), BRAID_TRANSFER_STORE=store)
        self.json = folder.with_suffix(".json")

    def serve(self, name, *words):
        process = subprocess.Popen([BRAID, "serve", "--name", name, "--address", "127.0.0.1", "--memory", "1M", *words],
                                   env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        address = process.stdout.readline().strip()
        return process, address

    def segments(self):
        done = subprocess.run([BRAID, "segments", "--json", str(self.json)], env=self.environment, capture_output=True,
                              text=True, timeout=60, check=False)
        assert "hunter" not in f"{done} {self.json.read_text() if self.json.exists() else ''}", done
        return done

    def rows(self):
        """By address."""
        done = self.segments()
        assert done.returncode == 0, done
        return {row["address"]: row for row in json.loads(self.json.read_text())}


def is_shown_after_its_end(one, other, engines):
    """The first engine is killed. False: the machine is too busy to look before its record runs out."""
    _, process, killed = engines[0]
    process.kill()
    process.wait()
    row = other.rows().get(killed)
    if row is None:
        return False
    assert not row["listens"] and "Connection refused" in row["state"], row
    # Who listens in its place is another engine, and has another name.
    place = killed.removeprefix("braid://").split("/")[0]
    name = f"decode-{len(engines)}"
    engines.append((name, *other.serve(name, "--listen", place)))
    row = other.rows().get(killed)
    if row is None:
        return False
    assert not row["listens"] and "another engine listens there now" in row["state"], row
    return True


def names_of_a_store(scheme, folder):
    port = free_port()
    command = server_of(scheme, port, folder / "server")
    if shutil.which(command[0]) is None:
        print(f"{command[0]} is not installed")
        return
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    login = f":{ENCODED}@" if scheme == "redis" else ""
    one = Host(folder / "one", f"{scheme}://{login}127.0.0.1:{port}")
    other = Host(folder / "other", f"{scheme}://{login}localhost:{port}")
    engines = []
    try:
        eventually(lambda: other.segments().returncode == 0, "the server does not answer")
        done = other.segments()
        assert "the store has none" in done.stdout, done
        if login:
            for wrong, why in (("", "wants a password"), (":hunter3@", "refuses the password")):
                stranger = Host(folder / f"stranger{len(wrong)}", f"{scheme}://{wrong}127.0.0.1:{port}")
                done = stranger.segments()
                assert done.returncode == 1 and f"the store at 127.0.0.1:{port} {why}" in done.stderr, done
                assert "[the store refuses]" in done.stderr and "does not answer" not in done.stderr, done
        for name in ("prefill-0", "prefill-1"):
            engines.append((name, *one.serve(name)))
        rows = other.rows()
        assert rows == {address: {"name": name, "address": address, "listens": True, "state": "answers"}
                        for name, _, address in engines}, rows
        rows = one.rows()
        here = [address for address in rows if not address.startswith("braid://")]
        assert len(here) == 2 and len(rows) == 4, f"the names of the host, and of the store: {rows}"

        for _ in range(5):
            killed = engines[0][2]
            if is_shown_after_its_end(one, other, engines):
                break
            engines[0] = ("prefill-0", *one.serve("prefill-0"))
        else:
            raise AssertionError("each record runs out before it is seen")
        eventually(lambda: killed not in other.rows(), "its record stays")
        assert other.rows()[engines[1][2]]["listens"], "one that lives is renewed"

        # A name that begins removes what the killed one has left on its host.
        left = str(pathlib.Path(one.environment["BRAID_RUNTIME_DIR"]) / "prefill-0")
        assert one.rows()[left]["state"] == "left by a process that ended"
        engines.append(("prefill-2", *one.serve("prefill-2")))
        assert left not in one.rows(), "it stays"

        _, process, ended = engines.pop()
        process.send_signal(signal.SIGINT)
        said = process.communicate()
        assert "hunter" not in str(said), said
        assert ended not in other.rows(), "one that ends gives its name back, long before its record runs out"

        server.send_signal(signal.SIGSTOP)
        done = other.segments()
        assert done.returncode == 1 and f"the store at localhost:{port} does not answer" in done.stderr, done
    finally:
        for _, process, _ in engines:
            process.kill()
            process.wait()
        server.kill()
        server.wait()


def main():
    for scheme in ("redis", "etcd"):
        with tempfile.TemporaryDirectory() as folder:
            names_of_a_store(scheme, pathlib.Path(folder))
    print("names are right")


if __name__ == "__main__":
    main()
