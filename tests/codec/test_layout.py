"""One table says where a record's fields lie; everything else is derived from it."""

import re

import pytest

from rmqha.codec.record import layout
from rmqha.codec.record.layout import (
    FIXED_FIELDS,
    HOST_KINDS,
    SysFlag,
    fields_struct,
    fixed_part,
    host_size,
    physical_offset_at,
    position_of,
    store_timestamp_at,
    sys_flag_at,
    total_size_at,
)

_TYPES = {"int32": "i", "int64": "q", "bytes": ""}


def test_the_table_that_is_read_is_the_table_that_is_documented() -> None:
    rows = re.findall(r"^ +([\d+BS]+) +(\w+) +([A-Z]+) +(int32|int64|bytes)  ", layout.__doc__ or "", re.MULTILINE)
    names = [name.replace("_", "").upper() for name, _ in FIXED_FIELDS]
    documented = [name.replace("ADDRESS", "").replace("MAGICCODE", "MAGIC") for _, _, name, _ in rows]
    assert documented == names[:-1]  # BODY stands there with its length and its bytes
    assert [_TYPES[kind] for _, _, _, kind in rows] == [code for _, code in FIXED_FIELDS[:-1]]
    for kind in HOST_KINDS:
        sizes = {"B": host_size("born_host", kind), "S": host_size("store_host", kind)}
        documented_at = [sum(int(sizes.get(term, term)) for term in at.split("+")) for at, *_ in rows]
        assert documented_at == [position_of(name, kind) for name, _ in FIXED_FIELDS[:-1]]


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_a_selection_reads_what_the_whole_struct_wrote(kind: int) -> None:
    values: list[int | bytes] = [
        bytes([at]) * host_size(field.name, kind) if not field.code else at for at, field in enumerate(FIXED_FIELDS, 1)
    ]
    by_name = dict(zip((field.name for field in FIXED_FIELDS), values, strict=True))
    by_name["sys_flag"] = values[7] = kind
    record = b"before" + fixed_part(kind).pack(*values)
    for field in FIXED_FIELDS:
        assert fields_struct(field.name, sys_flag=kind).unpack_from(record, 6) == (by_name[field.name],)
    assert total_size_at(record, 6) == by_name["total_size"]
    assert physical_offset_at(record, 6) == by_name["physical_offset"]
    assert sys_flag_at(record, 6) == kind
    assert store_timestamp_at(record, 6) == by_name["store_timestamp"]


def test_fields_in_front_of_the_hosts_lie_alike_in_all_records() -> None:
    for name in ("queue_offset", "physical_offset", "sys_flag", "born_host"):
        assert len({position_of(name, kind) for kind in HOST_KINDS}) == 1
    assert position_of("store_timestamp", SysFlag.BORN_HOST_V6) == 68
