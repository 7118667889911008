"""BORNHOST and STOREHOSTADDRESS as RocketMQ prints them: ``10.0.0.1:10911``, ``[2001:db8:0:0:0:0:0:1]:10911``."""

import sys

import numpy as np
import pyarrow as pa

from rmqha.codec.host import decode_host
from rmqha.spark.fields import Mask
from rmqha.spark.gather import numbers
from rmqha.spark.lane_walk import Bytes, Positions


def host_strings(block: Bytes, positions: Positions, is_v6: Mask) -> pa.Array:
    """One string a record. There are few different hosts, so each is formatted once a block."""
    if not is_v6.any():
        return _strings(block, positions, 8)
    v4, v6 = np.flatnonzero(~is_v6), np.flatnonzero(is_v6)
    both = pa.concat_arrays([_strings(block, positions[v4], 8), _strings(block, positions[v6], 20)])
    order = np.empty(positions.size, np.int64)
    order[np.concatenate([v4, v6])] = np.arange(positions.size)
    return both.take(numbers(order))


def _strings(block: Bytes, positions: Positions, width: int) -> pa.Array:
    if not positions.size:
        return pa.array([], pa.string())
    raw = np.ndarray((block.size - width + 1,), f"V{width}", block, strides=(1,))[positions]
    words = raw.view(np.uint32).reshape(raw.size, width // 4)
    if (words == words[0]).all():  # one broker stores all messages of a log, until a failover
        return pa.repeat(pa.scalar(decode_host(raw[0].tobytes())), raw.size)
    if width == 8:
        coded = numbers(raw.view(np.int64)).dictionary_encode()
        hosts = [decode_host(host.to_bytes(8, sys.byteorder, signed=True)) for host in coded.dictionary.to_pylist()]
    else:
        coded = pa.Array.from_buffers(pa.binary(width), raw.size, [None, pa.py_buffer(raw)]).dictionary_encode()
        hosts = [decode_host(host) for host in coded.dictionary.to_pylist()]
    return pa.array(hosts, pa.string()).take(coded.indices)
