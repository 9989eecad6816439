"""Runs the blocks of code of one batch: always the earliest pending one, with all lanes that stand there.

Blocks are in weak topological order, so lanes that part meet again where their paths join. A mask of lanes broadcasts
to (blocks, threads); None stands for all live lanes. Lanes at a barrier or at a warp operation wait for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.cfg import EXIT
from warpsmith.sandbox.emulator.lanes import Lanes, rectangle, to_warps
from warpsmith.sandbox.emulator.machine import Machine
from warpsmith.sandbox.emulator.program import CompiledBlock, Kernel
from warpsmith.sandbox.emulator.progress import TURN, Progress
from warpsmith.sandbox.emulator.ptx import Imm, Operand, Reg
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.emulator.violations import Violation

Mask = Array | None
_PATIENCE = 256
"""Steps after which blocks that spin are given those that have not started."""
_BITS = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)


class Scheduler:
    """One batch from start to end. `warps_run` counts the active warps of each executed block of code."""

    def __init__(self, kernel: Kernel, machine: Machine, step_limit: int, late: Array | None = None) -> None:
        """`late` marks blocks, in the shape (blocks, 1), that start only when the others cannot go on without them."""
        self.kernel, self.machine = kernel, machine
        self.late = late
        self.geometry = machine.geometry
        self.registers: list[Any] = list(kernel.initial)
        self.pending: dict[int, Mask] = {}
        self.waiting: dict[int, Array] = {}
        self.live: Mask = None
        self.everyone = Lanes(self.geometry)
        self.warps_run = [0] * len(kernel.blocks)
        self.divergent = 0
        self.barriers = 0
        self.step_limit = step_limit
        self.steps = 0
        self.progress = Progress()
        self.ran_at: dict[int, int] = {}
        self.idle = False
        self.writes_before = -1

    def run(self) -> None:
        """Run every lane to its end. Raises Violation."""
        self.pending[0] = None if self.late is None else ~self.late
        while self.pending or self.waiting or self.late is not None:
            if not self.pending:
                if not self._release(forced=self.late is None):
                    self._start_late()
                continue
            index = self._next()
            mask = self.pending.pop(index)
            if mask is not None and not self.pending and not self.waiting and self.late is None:
                mask = None
            compiled = self.kernel.blocks[index]
            if compiled.block.waits and (mask is not None or compiled.block.waits != "warp"):
                self._wait(index, compiled, mask)
            else:
                self._execute(compiled, mask)

    def _next(self) -> int:
        """The block of code that is due. Raises Violation where nothing can come of it any more."""
        self.steps += 1
        index = min(self.pending)
        if self.steps > self.step_limit:
            raise Violation("hang", f"no end after {self.step_limit} steps", site=self._site_of(index))
        spins = self._spins(index)
        circles = self.progress.stuck(
            self.steps,
            index,
            spins=spins,
            registers=self.registers,
            pending=self.pending,
            waiting=self.waiting,
            writes=self.machine.writes,
        )
        if self.late is not None and (circles or (spins and self.steps % _PATIENCE == 0)):
            self._start_late()
            index = min(self.pending)
        elif circles:
            raise Violation("hang", "runs in circles: nothing changes any more", site=self._site_of(index))
        elif spins:
            index = self._fair(index)
        self.progress.ran(index)
        self.ran_at[index] = self.steps
        return index

    def _spins(self, index: int) -> bool:
        return self.kernel.blocks[index].block.spins

    def _fair(self, index: int) -> int:
        """Where lanes spin at `index`: now and then the one that waits longest, and while nothing is written those that
        do not spin."""
        if self.steps % TURN == 0:
            self.idle = self.machine.writes == self.writes_before
            self.writes_before = self.machine.writes
            if self.waiting:
                self._release(forced=False)
            return min(self.pending, key=lambda place: self.ran_at.get(place, 0))
        return min((place for place in self.pending if self.idle and not self._spins(place)), default=index)

    def _start_late(self) -> None:
        late, self.late = self.late, None
        self._send(0, late)

    def _site_of(self, index: int) -> int:
        """A site in or near a block of code."""
        instrs = self.kernel.blocks[index].block.instrs
        lines = [instr.line for instr in instrs] or [0]
        near = [number for number, site in enumerate(self.kernel.sites) if site.line >= lines[0]]
        return min(near, key=lambda number: self.kernel.sites[number].line, default=-1)

    # --- running one block of code ---------------------------------------------------------------------------------

    def _execute(self, compiled: CompiledBlock, mask: Mask) -> None:
        if mask is None:
            lanes = self.everyone
            result = compiled.function(self.machine, lanes, self.registers)
        else:
            lanes = rectangle(self.geometry, mask)
            result = self._on_part(compiled, lanes)
        self.warps_run[compiled.block.index] += lanes.warps
        targets = compiled.block.targets
        if compiled.block.kind == "jump":
            self._send(targets[0], mask)
        elif compiled.block.kind == "cond":
            self._branch(targets, lanes, mask, result)
        else:
            self._indexed(targets, lanes, result)

    def _on_part(self, compiled: CompiledBlock, lanes: Lanes) -> Any:
        """Run on a part of the registers and put back what the block sets."""
        whole = self.registers
        part = list(whole)
        if lanes.rows is not None or lanes.cols is not None:
            for number in compiled.uses:
                part[number] = lanes.cut(whole[number])
        result = compiled.function(self.machine, lanes, part)
        for number in compiled.sets:
            whole[number] = lanes.put(whole[number], part[number])
        return result

    def _send(self, target: int, mask: Mask) -> None:
        """Lanes go to a block of code or leave."""
        if target == EXIT:
            self._leave(mask)
        elif target not in self.pending:
            self.pending[target] = mask
        else:
            other = self.pending[target]
            self.pending[target] = None if mask is None or other is None else other | mask

    def _leave(self, mask: Mask) -> None:
        before = self.live
        if mask is None:
            self.live = np.zeros((1, 1), np.bool_)
            self._end_blocks(before)
            return
        self.live = ~mask if self.live is None else self.live & ~mask
        if self.live.all():
            self.live = None
        full = None if self.live is None else np.broadcast_to(self.live, self.geometry.shape)
        self.everyone = Lanes(self.geometry, mask=full)
        self._end_blocks(before)

    def _end_blocks(self, before: Mask) -> None:
        """Tell those who watch clusters which blocks have just ended; `before` were the live lanes."""
        peers = self.machine.shared.peers
        if peers is not None:
            gone = ~self._full(None).any(axis=1)
            if before is not None:
                gone &= np.broadcast_to(before, self.geometry.shape).any(axis=1)
            peers.end(np.flatnonzero(gone))

    def _branch(self, targets: list[int], lanes: Lanes, mask: Mask, taken: Array) -> None:
        if taken.size == 1:
            self._send(targets[0] if taken[0, 0] else targets[1], mask)
            return
        relevant = taken if lanes.mask is None else taken & lanes.mask
        other = ~taken if lanes.mask is None else ~taken & lanes.mask
        if not relevant.any():
            self._send(targets[1], mask)
        elif not other.any():
            self._send(targets[0], mask)
        else:
            self._count_divergence(lanes, relevant, other)
            self._send(targets[0], lanes.spread(taken))
            self._send(targets[1], lanes.spread(~taken))

    def _count_divergence(self, lanes: Lanes, yes: Array, no: Array) -> None:
        """Warps whose active lanes go both ways."""
        both = to_warps(lanes, yes, False).any(axis=2) & to_warps(lanes, no, False).any(axis=2)
        self.divergent += int(both.sum()) * (lanes.shape[0] // both.shape[0])

    def _indexed(self, targets: list[int], lanes: Lanes, choice: Array) -> None:
        values = np.broadcast_to(choice, lanes.shape)
        chosen = [values == number for number in range(len(targets))]
        for target, flags in zip(targets, chosen, strict=True):
            mask = lanes.spread(flags)
            if mask.any():
                everyone = mask.all() if self.live is None else not (self.live & ~mask).any()
                self._send(target, None if everyone else mask)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _full(self, mask: Mask) -> Array:
        """A mask in full shape; None becomes all live lanes."""
        if mask is None:
            mask = np.ones((1, 1), np.bool_) if self.live is None else self.live
        return np.broadcast_to(mask, self.geometry.shape)

    def _wait(self, index: int, compiled: CompiledBlock, mask: Mask) -> None:
        """Let lanes run on whose partners are all there; the others wait."""
        plain = compiled.block.waits == "bar" and compiled.barrier_threads is None
        if mask is None and plain and not self.machine.arrived:
            self._pass_barrier(compiled, None)
            return
        full = self._full(mask)
        if index in self.waiting:
            full = full | self.waiting.pop(index)
        if compiled.block.waits == "warp":
            ready = full & self._complete_warps(compiled, full)
            rest = full & ~ready
            if rest.any():
                self.waiting[index] = rest
            if ready.any():
                self._execute(compiled, self._simplified(ready))
            return
        self.waiting[index] = full

    def _simplified(self, mask: Array) -> Mask:
        """None where a mask holds every live lane; one row or column where that says it all."""
        live = self.live
        if mask.all() if live is None else not (live & ~mask).any():
            return None
        if (mask == mask[:1]).all():
            return mask[:1]
        return mask[:, :1] if (mask == mask[:, :1]).all() else mask

    def _by_warp(self, mask: Array) -> Array:
        """(blocks, warps, 32), padded with False."""
        blocks, threads = self.geometry.shape
        padded = np.zeros((blocks, self.geometry.warps * 32), np.bool_)
        padded[:, :threads] = mask
        return padded.reshape(blocks, -1, 32)

    def _complete_warps(self, compiled: CompiledBlock, here: Array) -> Array:
        """Lanes whose live partners (by the member mask) are here as well."""
        arrived, alive = self._by_warp(here), self._by_warp(self._full(None))
        members = self._members(compiled.members)
        if members is None:
            complete = ~(alive & ~arrived).any(axis=2, keepdims=True)
            flags = np.broadcast_to(complete, arrived.shape)
        else:
            bits = self._bits(arrived)
            needed = np.zeros(self._by_warp(here).shape, np.uint32)
            needed.reshape(needed.shape[0], -1)[:, : self.geometry.threads] = members
            needed &= self._bits(alive)[..., None]
            flags = (needed & ~bits[..., None]) == 0
        result: Array = flags.reshape(flags.shape[0], -1)[:, : self.geometry.threads]
        return result

    @staticmethod
    def _bits(flags: Array) -> Array:
        result: Array = np.where(flags, _BITS, np.uint32(0)).sum(axis=2, dtype=np.uint32)
        return result

    def _members(self, operand: Operand | None) -> Array | None:
        """The member masks, or None where every lane is a member."""
        if operand is None or isinstance(operand, Imm):
            value = -1 if operand is None else operand.value
            return None if value & 0xFFFFFFFF == 0xFFFFFFFF else np.array([[value & 0xFFFFFFFF]], np.uint32)
        assert isinstance(operand, Reg)
        held: Array = self.registers[self.kernel.numbers[operand.name]].view(np.uint32)
        return None if held.size == 1 and int(held[0, 0]) == 0xFFFFFFFF else held

    def _pass_barrier(self, compiled: CompiledBlock, mask: Mask) -> None:
        """Lanes go through a barrier together."""
        rows = None if mask is None else np.flatnonzero(mask.any(axis=1))
        hazards = self.machine.shared.hazards
        if hazards is not None:
            hazards.pass_barrier(rows if rows is None or len(rows) < self.geometry.shape[0] else None)
        self.barriers += self.geometry.shape[0] if rows is None else len(rows)
        self._execute(compiled, None if mask is None else self._simplified(mask))

    def _release(self, *, forced: bool = True) -> bool:
        """Open the barriers at which everybody has arrived; if `forced` (nobody else can run), one must open. Whether
        one did."""
        opened = self._open_barriers() or self._open_clusters()
        if not opened and forced:
            raise self._stuck()
        return opened

    def _open_barriers(self) -> bool:
        alive = self._full(None)
        numbers = {self.kernel.blocks[index].barrier for index in self._waiting_at("bar")}
        for number in sorted(numbers):
            places = [index for index in self._waiting_at("bar") if self.kernel.blocks[index].barrier == number]
            here = np.zeros(self.geometry.shape, np.bool_)
            for index in places:
                here = here | self.waiting[index]
            rows = here.any(axis=1) & self._arrived_rows(number, places[0], here, alive)
            if not rows.any():
                continue
            self._check_converged(places, rows, alive)
            self._forget_arrivals(number, rows)
            for index in places:
                if (self.waiting[index] & rows[:, None]).any():
                    self._pass_waiting(index, rows)
            return True
        return False

    def _waiting_at(self, kind: str) -> list[int]:
        return [index for index in sorted(self.waiting) if self.kernel.blocks[index].block.waits == kind]

    def _arrived_rows(self, number: int, index: int, here: Array, alive: Array) -> Array:
        """Blocks of which enough threads arrived: the stated number, else all that live."""
        threads = self.kernel.blocks[index].barrier_threads
        if threads is None:
            result: Array = ~(alive & ~here).any(axis=1)
            return result
        wanted = threads.value if isinstance(threads, Imm) else self._uniform(threads)
        count = here.sum(axis=1)
        if number in self.machine.arrived:
            count = count + self.machine.arrived[number][1]
        enough: Array = count >= wanted
        return enough

    def _uniform(self, operand: Operand) -> int:
        assert isinstance(operand, Reg)
        return int(self.registers[self.kernel.numbers[operand.name]].ravel()[0])

    def _forget_arrivals(self, number: int, rows: Array) -> None:
        if number in self.machine.arrived:
            threads, count = self.machine.arrived.pop(number)
            count = np.where(rows, 0, count)
            if count.any():
                self.machine.arrived[number] = (threads, count)

    def _check_converged(self, places: list[int], rows: Array, alive: Array) -> None:
        """An aligned barrier must be reached by all live lanes of a warp at the same instruction."""
        for index in places:
            compiled = self.kernel.blocks[index]
            if not compiled.barrier_aligned:
                continue
            here, live = self._by_warp(self.waiting[index]), self._by_warp(alive)
            torn = here.any(axis=2) & (live & ~here).any(axis=2) & rows[:, None]
            if torn.any():
                row, warp = (int(number) for number in np.argwhere(torn)[0])
                lane = int(np.flatnonzero(here[row, warp])[0])
                raise Violation(
                    "divergent_barrier", "a barrier is reached by only a part of a warp", site=compiled.site, row=row,
                    thread=warp * 32 + lane,
                )  # fmt: skip

    def _pass_waiting(self, index: int, rows: Array) -> None:
        mask = self.waiting.pop(index)
        go = mask & rows[:, None]
        if (mask & ~rows[:, None]).any():
            self.waiting[index] = mask & ~rows[:, None]
        self._pass_barrier(self.kernel.blocks[index], go)

    def _open_clusters(self) -> bool:
        """`barrier.cluster.wait` opens for a cluster when all its live threads have arrived and wait, each anywhere:
        other clusters may be elsewhere."""
        places = self._waiting_at("cluster")
        if not places:
            return False
        here = np.zeros(self.geometry.shape, np.bool_)
        for index in places:
            here = here | self.waiting[index]
        there = (here & (self.machine.cluster_arrived > 0)) | ~self._full(None)
        complete = there.reshape(-1, self.machine.cluster * self.geometry.threads).all(axis=1)
        rows = np.repeat(complete, self.machine.cluster) & here.any(axis=1)
        if not rows.any():
            return False
        self.machine.cluster_arrived[here & rows[:, None]] -= 1
        self._settle_cluster(np.flatnonzero(rows))
        for index in places:
            mask = self.waiting.pop(index)
            go = mask & rows[:, None]
            if (mask & ~go).any():
                self.waiting[index] = mask & ~go
            if go.any():
                self._execute(self.kernel.blocks[index], self._simplified(go))
        return True

    def _settle_cluster(self, rows: Array) -> None:
        self.machine.acquire(rows)
        if self.machine.shared.peers is not None:
            self.machine.shared.peers.meet(rows)
        everything = rows if len(rows) < self.geometry.shape[0] else None
        for hazards in (self.machine.shared.hazards, self.machine.shared.between):
            if hazards is not None:
                hazards.pass_barrier(everything)
        self.barriers += len(rows)

    def _stuck(self) -> Violation:
        """Why nobody can go on: lanes that wait for others which wait elsewhere."""
        index = min(self.waiting)
        compiled = self.kernel.blocks[index]
        row, thread = (int(number) for number in np.argwhere(self.waiting[index])[0])
        if len(self.waiting) > 1 and any(self.kernel.blocks[other].block.waits == "bar" for other in self.waiting):
            masks = [self._by_warp(mask).any(axis=2) for mask in self.waiting.values()]
            if sum(mask.astype(np.int64) for mask in masks).max() > 1:
                return Violation(
                    "divergent_barrier", "threads of one warp wait at different barriers", site=compiled.site, row=row,
                    thread=thread,
                )  # fmt: skip
        lines = sorted(self.kernel.blocks[other].line for other in self.waiting)
        where = ", ".join(str(line) for line in lines)
        return Violation(
            "deadlock", f"threads wait for others that never arrive (PTX lines {where})", site=compiled.site, row=row,
            thread=thread,
        )  # fmt: skip
