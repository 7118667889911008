"""BORNHOST and STOREHOSTADDRESS as RocketMQ prints them: ``10.0.0.1:10911``, ``[2001:db8:0:0:0:0:0:1]:10911``."""

import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqha.codec.host import decode_host
from rmqha.spark.fields import Fields
from rmqha.spark.gather import numbers
from rmqha.spark.lane_walk import Bytes, Positions


def host_strings(fields: Fields, name: str) -> pa.Array:
    """``born_host`` or ``store_host`` of each record; there are few different ones, each is formatted once a block."""
    if not fields.has_v6:
        return _strings(np.ascontiguousarray(fields.headers[name]))
    positions, is_v6 = fields.born_host_positions() if name == "born_host" else fields.store_host_positions()
    v4, v6 = np.flatnonzero(~is_v6), np.flatnonzero(is_v6)
    parts = [_strings(_raw(fields.block, positions[v4], 8)), _strings(_raw(fields.block, positions[v6], 20))]
    order = np.empty(positions.size, np.int64)
    order[np.concatenate([v4, v6])] = np.arange(positions.size)
    return pa.concat_arrays(parts).take(numbers(order))


def _raw(block: Bytes, positions: Positions, width: int) -> npt.NDArray[np.void]:
    return np.ndarray((block.size - width + 1,), f"V{width}", block, strides=(1,))[positions]


def _strings(raw: npt.NDArray[np.void]) -> pa.Array:
    if not raw.size:
        return pa.array([], pa.string())
    words = raw.view(np.uint32).reshape(raw.size, -1)
    if (words == words[0]).all():  # one broker stores all messages of a log, until a failover
        return pa.repeat(pa.scalar(decode_host(raw[0].tobytes())), raw.size)
    if raw.itemsize == 8:
        coded = numbers(raw.view(np.int64)).dictionary_encode()
        hosts = [decode_host(host.to_bytes(8, sys.byteorder, signed=True)) for host in coded.dictionary.to_pylist()]
    else:
        width = raw.itemsize
        coded = pa.Array.from_buffers(pa.binary(width), raw.size, [None, pa.py_buffer(raw)]).dictionary_encode()
        hosts = [decode_host(host) for host in coded.dictionary.to_pylist()]
    return pa.array(hosts, pa.string()).take(coded.indices)
