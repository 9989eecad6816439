"""What a library call takes by the cost model: bytes and FLOPs at a usual share of the peak, convolutions by layout."""

from __future__ import annotations

from warpsmith.kernels.composite import Convolved, LibraryPart
from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.family import LaunchFeatures

_EFFICIENCY = 0.8
"""Share of the device's peak at which a library is taken to run."""
_TF32_SHARE = {80: 8.0, 86: 1.0, 89: 1.0, 90: 7.4, 100: 14.0}
"""Rate of tensor cores in TF32 over that of FP32 units, by compute capability (datasheets, without sparsity)."""
_HALF = 2.0
"""Rate of tensor cores in 16-bit types over that in TF32."""
_FULL_CHANNELS, _FULL_RESULTS = 64, 128
"""Channels summed over and made from which tensor cores run at their rate."""
_CHANNELS_KNEE, _RESULTS_KNEE = 0.85, 0.5
"""How the rate falls with fewer of them. Measured through torch.compile on an H200: sums over 8, 16 and 64 channels to
64 reach 70, 100 and 380 TFLOP/s beside the time of their bytes, to 128 about 480."""
_TURN = 1.8
"""Time that cuDNN takes to turn contiguous tensors itself over that of a copy of input and result. Measured on an H200:
eager's 2D convolutions less what the same ones take channels last, 8 to 64 channels to 64 or 128."""
_TILE = 128 * 128
"""Results that a block of a library's kernel makes."""
_LEAST_FILL = 0.125
"""Share of the device that a small convolution fills at least, its sums split among blocks."""
_DEEP, _DEEP_TRANSPOSED, _DEEP_WIDE, _DEEP_UNPACKED = 1.8, 1.5, 0.1, 0.02
"""Rates in 3D at most over that of FP32 units: of ordinary and of transposed convolutions, of those with strides and
five taps or more, dilation or groups, and of those with channels that are no multiple of 4. Measured on an H200,
contiguous: 122, 45 to 125, 6 to 8 and 1.2 TFLOP/s."""
_PACKED = 4
_STILL = 0.35
"""The same of transposed convolutions with stride 1, by the algorithm that cuDNN's heuristics name: 9 to 45 TFLOP/s."""
_BENCHMARKED = 3.5
"""Rate of the fastest algorithm over that of the one that heuristics name, of those. Measured on an H200: four
convolutions, 3.4 to 4.0; with strides 1.0, ordinary ones of 3 channels in 3D 1.3 to 2.8, in 1D and 2D 1.0 to 1.1."""
_SINGLE_CHANNELS = 2.0
"""Time of a convolution of single channels over that of its bytes."""


def of_library(part: LibraryPart, device: DeviceModel, *, benchmark: bool = False) -> LaunchFeatures:
    """A library call as a launch that fills the device; with `benchmark` a convolution by its fastest algorithm."""
    if part.convolved is not None and part.convolved.dtype != "float64":
        seconds = _convolution_s(part, part.convolved, device, benchmark=benchmark)
        count = int(seconds * device.dram_bytes_per_s)
        return _launch(part, device, count, 0)
    return _launch(part, device, int(part.bytes_moved / _EFFICIENCY), int(part.flops / _EFFICIENCY))


def _launch(part: LibraryPart, device: DeviceModel, count: int, flops: int) -> LaunchFeatures:
    return LaunchFeatures(
        kernel=f"library {part.step.library}", blocks=2 * device.sms, threads=256, registers=128, shared_bytes=0,
        dram_read=count, dram_written=0, l2_read=count, shared_traffic=0, flops=flops, special_ops=0,
        instructions=int(flops * _EFFICIENCY) // 2, bytes_in_flight=64, barriers=0, independent=4,
    )  # fmt: skip


def _convolution_s(part: LibraryPart, work: Convolved, device: DeviceModel, *, benchmark: bool) -> float:
    """Seconds of a convolution: its FLOPs on tensor cores, its bytes, and what a library turns on the way.

    In 3D both layouts cost the same as far as is known: `torch.compile` turns convolutions in 2D alone.
    """
    if work.channels == 1 and work.groups > 1:
        return _SINGLE_CHANNELS * part.bytes_moved / device.dram_bytes_per_s
    turns = not work.channels_last and work.dims < 3 and not work.pointwise
    moved = part.bytes_moved + (_TURN * 2 * work.turned_bytes if turns else 0)
    return part.flops / _rate(work, device, benchmark=benchmark) + moved / device.dram_bytes_per_s


def _rate(work: Convolved, device: DeviceModel, *, benchmark: bool) -> float:
    """FLOPs a second of a library's kernel, TF32 allowed as torch does by default."""
    peak = device.fp32_flops * _TF32_SHARE.get(capability(device.arch), 1.0)
    if work.dtype != "float32":
        peak *= _HALF
    share = pow(min(1.0, work.channels / _FULL_CHANNELS), _CHANNELS_KNEE)
    share *= pow(min(1.0, work.results / _FULL_RESULTS), _RESULTS_KNEE)
    if work.dims == 3:
        share = min(share, _deep(work, benchmark=benchmark) * device.fp32_flops / peak)
    blocks = work.positions * max(work.results, _TILE // 128) * work.groups / _TILE
    return float(peak * share) * max(_LEAST_FILL, min(1.0, blocks / device.sms))


def _deep(work: Convolved, *, benchmark: bool) -> float:
    """The rate that a convolution in 3D has at most, over that of FP32 units."""
    if not work.transposed:
        return _DEEP
    if work.channels % _PACKED:
        return _DEEP_UNPACKED
    if work.wide or work.dilated or work.groups > 1:
        return _DEEP_WIDE
    if work.strided:
        return _DEEP_TRANSPOSED
    return _STILL * _BENCHMARKED if benchmark else _STILL
