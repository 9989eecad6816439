"""Reads what a cubin holds: kernels, variables of the module, and functions that it expects from elsewhere."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

_ENTRY_MARK = 0x10
"""Bit of `st_other` that marks a kernel (STO_CUDA_ENTRY)."""
_OBJECT, _FUNCTION = 1, 2


@dataclass(frozen=True, slots=True)
class CubinSymbols:
    """Names by what they are."""

    kernels: frozenset[str]
    variables: frozenset[str]
    """In global memory, initialised or not."""
    undefined: frozenset[str]
    """Functions and variables that another module would have to bring."""
    unnamed_bytes: int
    """Of global memory that no symbol names."""


def read_symbols(cubin: bytes) -> CubinSymbols:
    """Raises ValueError if the bytes are not a cubin."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(cubin))
        sections = list(elf.iter_sections())
        table = next((section.data() for section in sections if section["sh_type"] == "SHT_SYMTAB"), b"")
        strings = next((section.data() for section in sections if section.name == ".strtab"), b"")
    except (ELFError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"not a cubin: {error}") from error
    memory = {
        number: section["sh_size"]
        for number, section in enumerate(sections)
        if section.name.split(".")[:3] == ["", "nv", "global"]
    }
    kernels, variables, undefined = set(), set(), set()
    named = 0
    for at, info, other, section, _, size in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
        name = strings[at : strings.find(b"\0", at)].decode(errors="replace")
        kind = info & 15
        if section == 0 and name and not name.startswith((".nv.", "__nv_reserved")):
            undefined.add(name)
        elif kind == _FUNCTION and other & _ENTRY_MARK:
            kernels.add(name)
        elif kind == _OBJECT and section in memory:
            variables.add(name)
            named += size
    bytes_ = sum(memory.values())
    return CubinSymbols(frozenset(kernels), frozenset(variables), frozenset(undefined), bytes_ if not named else 0)
