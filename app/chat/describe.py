"""From a description and example shapes to a reference module that the person has read and approved."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from warpsmith.agents.chat.grammar import GRAMMAR
from warpsmith.agents.chat.reference import Written, written
from warpsmith.agents.llm.accounts import Account
from warpsmith.agents.llm.records import Asker, NoReply
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.registry import crew_of
from warpsmith.app.chat.desk import Desk, Ended
from warpsmith.app.models import open_askers
from warpsmith.app.optimize import OptimizeSettings
from warpsmith.app.reference import approve_reference
from warpsmith.app.workbench import Bench, bench_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.inputspec import TensorInput, parse_inputs
from warpsmith.kernels.reference.rules import reference_hash, refuse_reference
from warpsmith.tools.runs.store import room_needed

ATTEMPTS = 4
"""Texts that the model may write before the person is asked to go on."""
FOLDER = ".references"
QUESTION = "is that what is right? It will run, confined. [y, n, or say what is wrong] "
WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Paid:
    """Replies that a description took: they count towards the caps of the run that comes of it."""

    replies: ReplyStore
    mark: int
    """Where they begin: what stands before was paid by other sessions."""


async def described(desk: Desk, settings: OptimizeSettings) -> tuple[Bench, Paid]:
    """Asks for a description and shapes, has a module written, and opens it once the person approved it: in every mode,
    for the module says what is right and its text is the model's. UserError where the person leaves."""
    crew = crew_of(settings.policy)
    if crew is None:
        raise UserError(
            "name a problem file, -c to continue the last session, or a model that turns a description into a "
            f"reference module: --policy {GRAMMAR}"
        )
    folder = settings.out / FOLDER
    with room_needed(folder):
        folder.mkdir(parents=True, exist_ok=True)
    address, _ = crew.pick(WRITER, 0)
    try:
        description, shapes = await _wanted(desk)
        with contextlib.ExitStack() as stack:
            kept = ReplyStore(folder)
            paid = Paid(kept, kept.mark())
            asker = open_askers(crew, kept, Account(settings.caps()), stack, booked=False)[address]
            return await _settled(desk, settings, asker, description, shapes), paid
    except Ended:
        raise desk.refuse_without("the reference module") from None


async def _wanted(desk: Desk) -> tuple[str, str]:
    desk.screen.line("what is to be computed? (a description in plain words)")
    description = await desk.ask_known("description> ", "say what is to be computed, or /exit")
    desk.screen.line("shapes of the example inputs, e.g. f32[4096,1024] f32[1024]")
    while True:
        shapes = await desk.ask_known("shapes> ", "write e.g. f32[4096,1024], or /exit")
        try:
            parse_inputs(shapes)
        except UserError as error:
            desk.screen.error(str(error))
        else:
            return description, shapes


async def _settled(desk: Desk, settings: OptimizeSettings, asker: Asker, description: str, shapes: str) -> Bench:
    """Has texts written until one is approved and can be opened."""
    before: str | None = None
    complaints: list[str] = []
    while True:
        reply = await _by_the_rules(desk, asker, description, shapes, before, complaints)
        before = reply.module
        desk.screen.code(reply.module, "python")
        digest = reference_hash(reply.module)
        desk.screen.line(f"read as: {reply.why}")
        desk.screen.line(f"SHA-256 {digest}")
        answer = await desk.ask_known(QUESTION, "answer y, n, or say what is wrong")
        if answer.lower() in ("n", "no"):
            raise Ended
        if answer.lower() not in ("y", "yes"):
            complaints = [answer]
            continue
        try:
            return _opened(settings, reply.module, digest, shapes)
        except UserError as error:
            desk.screen.error(str(error))
            complaints = [str(error)]


async def _by_the_rules(
    desk: Desk, asker: Asker, description: str, shapes: str, before: str | None, complaints: list[str]
) -> Written:
    """A text that the rules let pass. UserError where the model writes none in `ATTEMPTS`."""
    for _ in range(ATTEMPTS):
        desk.screen.line(f"asking {asker.name} for a reference module ...", "dim")
        try:
            reply = await asyncio.to_thread(written, description, shapes, before, complaints, asker)
        except NoReply as error:
            raise UserError(f"the model wrote no module: {error}") from error
        breach = refuse_reference(reply.module)
        if breach is None:
            return reply
        desk.screen.note(f"refused by the rules: {breach}")
        before, complaints = reply.module, [str(breach)]
    raise UserError(f"the model wrote {ATTEMPTS} modules that the rules refuse; write the problem file by hand")


def _opened(settings: OptimizeSettings, text: str, approved: str, shapes: str) -> Bench:
    """The problem of the approved text. UserError where it fails or takes other inputs than the person named."""
    problem, approval = approve_reference(text, approved, settings.out / FOLDER / approved[:12])
    bench = bench_for(
        problem, device=settings.device, arch=settings.arch, jobs=settings.jobs, approval=approval
    )  # fmt: skip
    taken = [(one.dtype, one.shape) for one in bench.operands if one.name.startswith("in") and not one.scalar]
    tensors = [one for one in parse_inputs(shapes) if isinstance(one, TensorInput)]
    if taken != [(str(one.dtype).removeprefix("torch."), one.shape) for one in tensors]:
        has = " ".join(f"{dtype}{list(shape)}" for dtype, shape in taken)
        raise UserError(f"get_inputs() makes {has}, not {shapes}")
    return bench
