"""NVIDIA's run-time compiler (NVRTC) through ctypes: where it is, what it knows, how it compiles."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from warpsmith.kernels.errors import EnvironmentError_, UserError

LIBRARY_VARIABLE = "WARPSMITH_NVRTC"
"""Environment variable naming the NVRTC library to use instead of the one found."""

SUCCESS, OUT_OF_MEMORY, INVALID_OPTION, COMPILATION, BUILTIN_FAILURE = 0, 1, 5, 6, 7
"""The `nvrtcResult` values that callers tell apart (nvrtc.h)."""

SOURCE_NAME = "kernel.cu"
"""File name of the compiled text in logs and line information."""

INSTALL_HINT = (
    "install it with `pip install 'nvidia-cuda-nvrtc>=13.0,<14'` (CUDA 13 drivers, or no GPU) "
    "or `pip install nvidia-cuda-nvrtc-cu12` (CUDA 12 drivers)"
)

_WHEEL_PATTERNS = ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12", "*/lib/libnvrtc.so.[0-9]*")
_WHEEL_INCLUDES = ("cu13/include", "cuda_runtime/include")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one call of NVRTC gave; `ptx` is there also when only the assembler (ptxas) failed."""

    code: int
    """`nvrtcResult`; 0 is success."""
    log: str
    cubin: bytes
    ptx: str


class Nvrtc:
    """A loaded NVRTC library. Its front end holds one lock: parallel compiles need processes, not threads."""

    def __init__(self, library: Path) -> None:
        """Load `library`. Raises EnvironmentError_ if that is not a usable NVRTC."""
        self.library = library
        try:
            # CUDA 13.0 wheels lack a run path to their own builtins library; loaded beforehand it is found.
            for builtins in sorted(library.parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(str(builtins))
            self._lib = ctypes.CDLL(str(library))
            self.version = self._read_version()
            self.archs = self._read_archs()
        except (OSError, AttributeError) as error:
            message = f"{library.name} is not a usable NVRTC ({error}): {INSTALL_HINT}"
            raise EnvironmentError_(message) from error

    @property
    def major(self) -> int:
        """Major CUDA version; a driver of an older major cannot load the cubins."""
        return int(self.version.split(".")[0])

    def check_arch(self, arch: str) -> None:
        """Raise UserError unless this NVRTC can make a cubin for `arch` (`sm_90`, `sm_90a`, `sm_100f`)."""
        found = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
        if found is None or int(found[1]) not in self.archs:
            known = ", ".join(f"sm_{number}" for number in self.archs)
            raise UserError(f"NVRTC {self.version} cannot compile for {arch!r}: it knows {known}; pass one with --arch")

    def compile(self, source: str, *, options: tuple[str, ...]) -> Compiled:
        """Compile device source text; `options` name the architecture. A failed compile is a value."""
        program = ctypes.c_void_p()
        text = source.encode()
        code = self._lib.nvrtcCreateProgram(ctypes.byref(program), text, SOURCE_NAME.encode(), 0, None, None)
        if code != SUCCESS:
            return Compiled(code, f"nvrtcCreateProgram: {self.describe(code)}", b"", "")
        try:
            flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = self._lib.nvrtcCompileProgram(program, len(options), flags)
            # the assembler ends its parts with NUL bytes
            log = self._fetch(program, "ProgramLog").replace(b"\0", b"\n").decode(errors="replace")
            cubin = self._fetch(program, "CUBIN") if code == SUCCESS else b""
            ptx = self._fetch(program, "PTX").rstrip(b"\0").decode(errors="replace")
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))
        return Compiled(code, log, cubin, ptx)

    @property
    def has_bundled_headers(self) -> bool:
        """Whether the library carries the device headers itself (13.3 and later)."""
        return hasattr(self._lib, "nvrtcInstallBundledHeaders")

    def install_headers(self, folder: Path) -> None:
        """Unpack the bundled headers (about 26 MB) unless they are there; safe for processes side by side.

        Raises EnvironmentError_ if that fails.
        """
        log = ctypes.c_char_p()
        code = self._lib.nvrtcInstallBundledHeaders(str(folder).encode(), 0, ctypes.byref(log))
        if code != SUCCESS:
            reason = (log.value or b"").decode(errors="replace") or self.describe(code)
            raise EnvironmentError_(f"cannot unpack NVRTC's headers into {folder}: {reason}")

    def describe(self, code: int) -> str:
        """NVRTC's own name of a result code."""
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        return bytes(self._lib.nvrtcGetErrorString(code)).decode()

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        """One output of a program: `ProgramLog`, `CUBIN` or `PTX`; empty if there is none."""
        size = ctypes.c_size_t()
        status = getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        if status != SUCCESS or size.value == 0:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        if getattr(self._lib, f"nvrtcGet{what}")(program, buffer) != SUCCESS:
            return b""
        return buffer.raw

    def _read_version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        if self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != SUCCESS:
            raise OSError("nvrtcVersion failed")
        return f"{major.value}.{minor.value}"

    def _read_archs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        if self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)) != SUCCESS:
            raise OSError("nvrtcGetNumSupportedArchs failed")
        numbers = (ctypes.c_int * count.value)()
        if self._lib.nvrtcGetSupportedArchs(numbers) != SUCCESS:
            raise OSError("nvrtcGetSupportedArchs failed")
        return tuple(sorted(numbers))


@lru_cache(maxsize=4)
def load_nvrtc(library: Path | None = None) -> Nvrtc:
    """The NVRTC at `library`, else the one that `find_library` finds; loaded once a process."""
    return Nvrtc(library or find_library())


def find_library() -> Path:
    """The NVRTC of this machine: $WARPSMITH_NVRTC, pip wheels (CUDA 13, then 12), then a CUDA toolkit.

    Raises EnvironmentError_ that names the pip install if there is none; UserError where the variable names no file.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        if Path(named).is_file():
            return Path(named)
        raise UserError(f"${LIBRARY_VARIABLE} names {named}, which is no file: unset it")
    for path in _candidates():
        if path.is_file():
            return path
    raise EnvironmentError_(f"no NVRTC (libnvrtc.so) found: {INSTALL_HINT}")


def include_dirs(nvrtc: Nvrtc) -> tuple[Path, ...]:
    """Folders with CUDA's device headers of NVRTC's own major version; empty where none is installed."""
    roots = [root / name for root in wheel_roots() for name in _WHEEL_INCLUDES]
    roots += [toolkit / "include" for toolkit in _toolkits()]
    for folder in roots:
        version = header_version(folder)
        if version is not None and version // 1000 == nvrtc.major:
            return tuple(path for path in (folder, folder / "cccl") if path.is_dir())
    return ()


def header_version(folder: Path) -> int | None:
    """CUDA version of the headers in a folder (13.0 is 13000); None unless the device headers are there."""
    header = folder / "cuda_runtime_api.h"
    if not header.is_file() or not (folder / "cuda_fp16.h").is_file():
        return None
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"))
    return int(found[1]) if found else None


def wheel_roots() -> tuple[Path, ...]:
    """The `nvidia` namespace folders into which NVIDIA's wheels install."""
    spec = importlib.util.find_spec("nvidia")
    return tuple(Path(path) for path in (spec.submodule_search_locations or ())) if spec else ()


def _candidates() -> Iterator[Path]:
    for pattern in _WHEEL_PATTERNS:
        for root in wheel_roots():
            yield from sorted(root.glob(pattern))
    for toolkit in _toolkits():
        yield from (toolkit / folder / "libnvrtc.so" for folder in ("lib64", "lib"))
    system = ctypes.util.find_library("nvrtc")
    if system:
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu"):
            yield Path(folder) / system


def _toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")
