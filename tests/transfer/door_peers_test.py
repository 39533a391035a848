#!/usr/bin/env python3
"""Peers of the engine with Mooncake's interface come and go under new names, as a decode rank does that is restarted.
That interface closes nothing: what is kept of those that are gone goes when others come.

  door_peers_test.py DOOR-FOLDER LIBRARY
"""
import gc
import json
import os
import pathlib
import sys

os.environ["BRAID_TRANSFER_LIBRARY"] = sys.argv[2]
os.environ["MC_TRANSFER_TIMEOUT"] = "7"
sys.path[:0] = [sys.argv[1], str(pathlib.Path(sys.argv[1]).parent)]

from mooncake.engine import TransferEngine  # noqa: E402
from braid import mooncake_engine, transfer  # noqa: E402


def opened():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0 and engine.allocate_managed_buffer(4096) != 0
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


def write_to(name):
    return engine.transfer_sync_write(name, source, engine.get_first_buffer_address(name), 4096)


def peers():
    """How many the engine has ways to."""
    return len({way["peer"] for way in json.loads(engine._engine.report())["braid_transfer"]["ways"]})


engine, here = opened()
source = engine.get_first_buffer_address(here)
stays, name_that_stays = opened()
assert write_to(name_that_stays) == 0
most = 0
for _ in range(80):
    other, name = opened()
    assert write_to(name) == 0
    most = max(most, peers())
    del other
    gc.collect()
assert 60 <= most <= 70, most
assert peers() <= 30, "of those that are gone much is kept"
assert write_to(name_that_stays) == 0

# Where an engine has no room for one more peer, those that are gone make it.
usual, refusals = engine._engine.open_segment, []


def refuse_once(*arguments):
    if not refusals:
        refusals.append(transfer.Error("there are 4096 peers, the limit", cause=transfer.TOO_MUCH))
        raise refusals[0]
    return usual(*arguments)


before, engine._engine.open_segment = peers(), refuse_once
other, name = opened()
assert write_to(name) == 0 and refusals and peers() < before, (peers(), before)

# A batch has a second more for each GB, as with the wheel.
assert mooncake_engine._limit_s(0) == 7 and mooncake_engine._limit_s(40_000_000_000) == 47
