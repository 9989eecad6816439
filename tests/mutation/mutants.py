"""The defences of the judge, each with a text that breaks it and with what has to notice."""

from __future__ import annotations

from dataclasses import dataclass

Check = tuple[str, ...] | str
"""Names of attacks (one of them, or its control, has to change its verdict), or a function of `checks.py`."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defence broken: in `file`, `old` (which stands there exactly once) becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    check: Check
    quick: bool = False
    """Whether it runs in the short selection."""


VERIFY, OUTCOMES, COMPARE = "tools/verification/verify.py", "tools/outcomes.py", "tools/verification/compare.py"
EMULATOR, PTX, SLOTS = "sandbox/emulator/backend.py", "tools/rules/ptx_policy.py", "kernels/slot_text.py"
JUDGE, EXACT = "tools/plan_file.py", "tools/verification/compare_exact.py"

LAUNCH = "    with progress.ran():\n        result = loaded.launch("
JUDGED = "    progress.reordered = bool(result.notes)\n    if result.failure is None and result.refused is None:\n"

MUTANTS = (
    Mutant(
        "outputs are not poisoned", VERIFY,
        "    outputs.poison(poison)\n" + LAUNCH, LAUNCH, ("c01_answer_left_in_place",), quick=True,
    ),
    Mutant(
        "changed inputs are ignored", VERIFY,
        "    if changed:\n", "    if False:\n", ("c04_input_zeroed", "c04_inputs_exchanged"), quick=True,
    ),
    Mutant(
        "what a launch reports is ignored", VERIFY,
        "    progress.failure = result.failure\n" + JUDGED, JUDGED.replace("result.failure is None and ", ""),
        ("c02_right_first_then_refused",),
    ),
    Mutant(
        "only the last output is compared", VERIFY,
        "for index, value in enumerate(outputs.tensors):", "for index, value in list(enumerate(outputs.tensors))[-1:]:",
        ("c32_first_output_wrong",),
    ),
    Mutant(
        "only the first output is compared", VERIFY,
        "for index, value in enumerate(outputs.tensors):", "for index, value in list(enumerate(outputs.tensors))[:1]:",
        ("c32_last_output_wrong",),
    ),
    Mutant(
        "nothing is compared", VERIFY,
        "        if found.problem is not None:\n", "        if False:\n", ("c06_bias_left_out", "c10_tanh_gelu"),
    ),
    Mutant(
        "ratios may be a hundred times larger", COMPARE,
        "Limits(rms_ratio=64, max_ratio=300, atol=1e-3, rtol=1e-3)",
        "Limits(rms_ratio=6400, max_ratio=30000, atol=1e-3, rtol=1e-3)",
        ("c10_half_inputs", "c10_tf32_inputs"),
    ),
    Mutant(
        "NaN in the reference is a wildcard", COMPARE,
        "(wild & ~same) | (~finite & ~same)", "wild & ~same & finite", ("c16_zero_where_nan",),
    ),
    Mutant(
        "NaN in the result is a wildcard", COMPARE,
        "(wild & ~same) | (~finite & ~same)", "~finite & ~same", ("c16_all_nan", "c37_tail_left_out"),
    ),
    Mutant(
        "every index counts as tied", EXACT,
        "    truth = reference.to(value.device).long()\n    index =", "    return True\n    index =",
        ("c34_off_by_one_index",),
    ),
    Mutant(
        "wrong integers are always excused", EXACT,
        "    if measure.fine:\n        return apart", "    if True:\n        return True or apart",
        ("c34_index_of_a_near_value",),
    ),
    Mutant(
        "checksums do not mix", "tools/verification/checksums.py",
        "(piece.to(torch.int64) + _KEYS[0]) * _KEYS[1]", "piece.to(torch.int64) * 0", ("c04_input_zeroed",),
    ),
    Mutant(
        "only the quick kinds of input", "tools/verification/session.py",
        'if level == "full" or kind.name in quick]', "if kind.name in quick]",
        ("c15_epsilon_dropped", "c15_fixed_scale"),
    ),
    Mutant(
        "inputs can be foretold", "tools/verification/instances.py",
        'return int.from_bytes(os.urandom(7), "big")', "return 7",
        "entropy_is_secret",
    ),
    Mutant(
        "constant inputs are never varied", "tools/verification/inputs.py",
        "    inputs = []\n    for position, domain",
        "    return shipped\n    for position, domain", ("c08_hard_coded", "c15_fixed_scale"),
    ),
    Mutant(
        "scratch comes zeroed", EMULATOR,
        '_raw(tensor).fill_(0 if buffer.init == "zero" else poison)\n            if buffer.init == "zero":\n',
        "_raw(tensor).fill_(0)\n            if True:\n", ("c37_scratch_never_written",),
    ),
    Mutant(
        "steps may change what load-time steps wrote", EMULATOR,
        "(load_time_changed(changed) if changed else None)", "None", ("c36_state_behind_prepare",),
    ),
    Mutant(
        "elements are not held against their own value", COMPARE,
        "    if problem is None and miss is not None:\n", "    if False:\n", ("c05_small_half_left_out",),
    ),
    Mutant(
        "booleans are compared by value", EXACT,
        "int(value.view(torch.uint8).max()) > 1", "False", ("c34_boolean_of_another_byte",),
    ),
    Mutant(
        "no row is silent", "tools/verification/inputs.py",
        "_zero_slices, plainer=_edges", "_edges", ("c15_epsilon_of_a_silent_row",),
    ),
    Mutant(
        "what depends on addresses counts as order", VERIFY,
        "_by_place(loaded, inputs, first, second) or ", "", ("c33_address_behind_a_dead_atomic",),
    ),
    Mutant(
        "races are not looked for", EMULATOR,
        "Checks(races=check_races,", "Checks(races=False,",
        ("c37_race_on_the_output", "c37_race_in_shared"), quick=True,
    ),
    Mutant(
        "uninitialised reads are not looked for", EMULATOR,
        "uninitialized=check_uninitialized)", "uninitialized=False)", ("c36_shared_left_over",),
    ),
    Mutant(
        "launch limits are not looked at", EMULATOR,
        "            if failure is not None:\n                return failure\n"
        "        return None\n\n    def _take_modules(",
        "        return None\n\n    def _take_modules(", ("c02_too_much_shared", "c02_right_first_then_refused"),
    ),
    Mutant(
        "library steps may change shapes", "sandbox/cuda/library.py",
        "        if target.shape != shape:\n", "        if False:\n", ("c27_library_resizes",),
    ),
    Mutant(
        "library steps may write inputs", "sandbox/cuda/library.py",
        'or step.out.startswith(("in", "param:"))', "or False", ("c27_library_into_an_input",),
    ),
    Mutant(
        "library steps are launched with any keyword", "sandbox/cuda/library.py",
        "    if unknown:\n", "    if False:\n", "library_keywords_are_listed",
    ),
    Mutant(
        "library steps are loaded with any keyword", JUDGE,
        "        if name not in taken:\n", "        if False:\n", "library_keywords_are_listed",
    ),
    Mutant(
        "a hybrid counts as its own", OUTCOMES,
        "    if not any(library):\n        return \"own\"\n", "    if True:\n        return \"own\"\n",
        ("c27_library_does_it_all",),
    ),
    Mutant(
        "no roof", OUTCOMES,
        "        if time_us < roof.gate_us:\n", "        if False:\n", "roof_is_a_gate", quick=True,
    ),
    Mutant(
        "ratios upside down", "tools/measurement/statistics.py",
        "np.asarray(baseline[:count], dtype=np.float64) / np.asarray(candidate[:count], dtype=np.float64)",
        "np.asarray(candidate[:count], dtype=np.float64) / np.asarray(baseline[:count], dtype=np.float64)",
        "speedups_have_their_sign", quick=True,
    ),
    Mutant(
        "baseline and candidate exchanged", "tools/measurement/timing.py",
        "{name: speedup(values, own) for name, values in others.items()}",
        "{name: speedup(own, values) for name, values in others.items()}", "speedups_have_their_sign",
    ),
    Mutant(
        "a figure for what was not timed", "tools/measurement/timing.py",
        "    own = raw.samples.get(CANDIDATE)\n", "    own = raw.samples.get(CANDIDATE) or (1.0,)\n",
        "what_was_not_timed_has_no_figure",
    ),
    Mutant(
        "no policy on compiled code", PTX,
        '    """The first rule that compiled code breaks, or None. Never raises, whatever the text."""\n',
        "    return None\n", ("t12_weights_kept_in_a_global", "t20_clock_phase", "t23_printf_flood"),
    ),
    Mutant(
        "any special register may be read", PTX,
        "            or _registers(module, manifest)\n", "", ("t20_clock_phase", "t20_global_timer"),
    ),
    Mutant(
        "any hint to L2 may be given", PTX,
        "            or _modifiers(module, manifest)\n", "", ("t16_prefetch_evict_last", "t16_evict_last"),
    ),
    Mutant(
        "no rules for slots", SLOTS,
        "    found = refusal(text, frozenset(reserved))\n", "    found = None\n",
        ("s1_directive", "s1_early_return", "s1_static_variable", "s1_assembly"),
    ),
    Mutant(
        "a role may edit any slot", "kernels/assemble.py",
        "    if owner != role:\n", "    if False:\n", ("s1_foreign_slot",),
    ),
    Mutant(
        "choices of another type count as equal", "kernels/assemble.py",
        "any(value == legal and type(value) is type(legal) for legal in slot.values)", "value in slot.values",
        ("s1_choice_of_another_type",),
    ),
    Mutant(
        "hidden shapes are skipped", "tools/verification/hidden_shapes.py",
        "        if isinstance(found, Failure):\n", "        if False:\n", ("c14_shape_in_a_slot",),
    ),
    Mutant(
        "links are followed", JUDGE,
        " | os.O_NOFOLLOW", "", ("c24_symbolic_link",), quick=True,
    ),
    Mutant(
        "keys may stand twice", JUDGE,
        "        if name in found:\n", "        if False:\n", ("c24_duplicated_keys",),
    ),
    Mutant(
        "load-time steps see inputs", JUDGE,
        '        if where.startswith("prepare") and', "        if False and",
        ("t12_prepare_reads_inputs", "t12_prepare_writes_outputs"),
    ),
    Mutant(
        "no problem is degenerate", "tools/verification/audit.py",
        "        return not trivial and not self.untold and bool(self.tried)\n", "        return True\n",
        "degenerate_problems_are_named",
    ),
    Mutant(
        "hangs are forgotten", "tools/hang_cache.py",
        "        if outcome.status != \"hang\" or", "        if True or outcome.status != \"hang\" or",
        "hangs_are_remembered",
    ),
    Mutant(
        "hangs of another problem count", "tools/hang_cache.py",
        "[_SCHEMA, __version__, problem_hash, target.kind", "[_SCHEMA, __version__, target.kind",
        "hangs_are_remembered",
    ),
    Mutant(
        "a hang has no name", OUTCOMES,
        '_HANG = {"hang", ', '_HANG = {"never", ', ("c31_endless",),
    ),
    Mutant(
        "a crash has no name", OUTCOMES,
        '"illegal_address", "out_of_bounds", ', '"illegal_address", ', ("c39_out_of_bounds_read",),
    ),
)  # fmt: skip
