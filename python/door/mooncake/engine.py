"""`mooncake.engine` on braid."""
from braid.mooncake_engine import *  # noqa: F401, F403
from braid.mooncake_engine import Read, TransferEngine, TransferNotify, TransferOpcode, Write  # noqa: F401
