"""A small space with roles, invalid corners and interactions between roles."""

import pytest

from warpsmith.agents.synthetic import SLOTS, FormulaSpace
from warpsmith.kernels.slots import Values


def runs(values: Values) -> bool:
    return int(values["block"]) * int(values["items"]) * int(values["vector"]) <= 8192


@pytest.fixture(scope="session")
def space() -> FormulaSpace:
    return FormulaSpace(SLOTS, {"block": 256, "vector": 2}, runs, roles=True, name="formula_sm_90")
