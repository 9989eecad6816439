"""Variables of a loaded module: given back their first contents, so that no run finds what one before it left."""

from __future__ import annotations

import ctypes
import io
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.sandbox.cuda.driver import Driver, DriverError


def variable_names(cubin: bytes) -> tuple[str, ...]:
    """Names of what lies in a cubin's global memory, constant tables that compilers keep there included. Empty for what
    is no cubin."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        sections = list(ELFFile(io.BytesIO(cubin)).iter_sections())
        memory = {n for n, one in enumerate(sections) if one.name.split(".")[:3] == ["", "nv", "global"]}
        symbols = [one for table in sections if isinstance(table, SymbolTableSection) for one in table.iter_symbols()]
    except (ELFError, ValueError):
        return ()
    return tuple(
        one.name for one in symbols if one.name and one["st_shndx"] in memory and one["st_info"]["type"] == "STT_OBJECT"
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    address: int
    contents: torch.Tensor
    """In pinned host memory, out of every kernel's reach."""


class Variables:
    """The variables of one module, copied when nothing has run yet."""

    def __init__(self, driver: Driver, module: int, cubin: bytes, stream: int) -> None:
        """`module` is the CUmodule. Waits for the stream where there are variables."""
        self._driver = driver
        self._kept: list[_Kept] = []
        self.unreached: list[str] = []
        """Names that the driver does not give an address for."""
        for name in variable_names(cubin):
            address, size = ctypes.c_uint64(), ctypes.c_size_t()
            try:
                driver.call(
                    "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(module),
                    ctypes.c_char_p(name.encode()),
                )  # fmt: skip
            except DriverError:
                self.unreached.append(name)
                continue
            contents = torch.empty(size.value, dtype=torch.uint8, pin_memory=True)
            self._copy("cuMemcpyDtoHAsync_v2", contents.data_ptr(), address.value, size.value, stream)
            self._kept.append(_Kept(address.value, contents))
        if self._kept:
            driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def restore(self, stream: int) -> None:
        """Enqueues copies of the first contents over what is there; nothing where there are no variables."""
        for one in self._kept:
            self._copy("cuMemcpyHtoDAsync_v2", one.address, one.contents.data_ptr(), one.contents.numel(), stream)

    def _copy(self, name: str, target: int, source: int, size: int, stream: Any) -> None:
        self._driver.call(
            name, ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )
