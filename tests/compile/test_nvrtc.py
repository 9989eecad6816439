"""The NVRTC binding: found, versioned, strict about architectures, cubin and PTX in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.sandbox import nvrtc as binding
from warpsmith.sandbox.nvrtc import COMPILATION, SUCCESS, Nvrtc, find_library, load_nvrtc

SOURCE = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }'


def test_version_and_architectures_are_read_from_the_library() -> None:
    nvrtc = load_nvrtc()
    assert nvrtc.major in (12, 13)
    assert nvrtc.version.startswith(f"{nvrtc.major}.")
    assert 90 in nvrtc.archs
    assert list(nvrtc.archs) == sorted(nvrtc.archs)


def test_one_compile_gives_cubin_ptx_and_what_ptxas_says() -> None:
    options = ("--gpu-architecture=sm_90", "--ptxas-options=-v", "-lineinfo")
    done = load_nvrtc().compile(SOURCE, options=options)
    assert done.code == SUCCESS
    assert done.cubin.startswith(b"\x7fELF")
    assert ".visible .entry k(" in done.ptx
    assert ".loc" in done.ptx
    assert "Used" in done.log


def test_an_instruction_of_another_architecture_shows_when_the_cubin_is_built() -> None:
    source = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    nvrtc = load_nvrtc()
    assert nvrtc.compile(source, options=("--gpu-architecture=sm_90",)).code == COMPILATION
    assert nvrtc.compile(source, options=("--gpu-architecture=sm_90a",)).code == SUCCESS


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_80"])
def test_known_architectures_pass(arch: str) -> None:
    load_nvrtc().check_arch(arch)


@pytest.mark.parametrize("arch", ["sm_91", "sm_20", "compute_90", "90", "", "sm_90x", "sm_90 --evil"])
def test_other_architectures_are_the_users_error_and_the_known_ones_are_listed(arch: str) -> None:
    with pytest.raises(UserError, match=r"sm_80.*sm_90.*--arch"):
        load_nvrtc().check_arch(arch)


def test_a_file_that_is_no_library_is_refused_with_the_install_command(tmp_path: Path) -> None:
    fake = tmp_path / "libnvrtc.so.13"
    fake.write_bytes(b"not a library")
    with pytest.raises(EnvironmentError_, match="pip install"):
        Nvrtc(fake)


def test_another_library_is_refused_with_the_install_command() -> None:
    with pytest.raises(EnvironmentError_, match="pip install"):
        Nvrtc(Path("libm.so.6"))


def test_the_environment_variable_names_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = find_library()
    copy = tmp_path / "libnvrtc.so.13"
    copy.symlink_to(real)
    monkeypatch.setenv(binding.LIBRARY_VARIABLE, str(copy))
    assert find_library() == copy
    monkeypatch.setenv(binding.LIBRARY_VARIABLE, str(tmp_path / "gone.so"))
    with pytest.raises(UserError, match=r"gone\.so"):
        find_library()


def test_header_folders_are_those_of_the_same_major_version(tmp_path: Path) -> None:
    (tmp_path / "cuda_fp16.h").touch()
    (tmp_path / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  12090\n")
    assert binding.header_version(tmp_path) == 12090
    assert binding.header_version(tmp_path / "none") is None
    nvrtc = load_nvrtc()
    for folder in binding.include_dirs(nvrtc)[:1]:
        assert (binding.header_version(folder) or 0) // 1000 == nvrtc.major
