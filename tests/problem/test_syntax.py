"""The parser under a garbage collection whose finalizers parse as well."""

import ast
import gc

from warpsmith.kernels.syntax import parsed

TEXT = "\n".join(f"x{number} = [{number}, ({number} + 1) * 2, 'a', f(y=3)]" for number in range(400))


class Parses:
    """Garbage in a cycle, which parses when it is collected."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        ast.parse("1 + (2 * 3)")


def test_a_finalizer_that_parses_does_not_spoil_the_parse() -> None:
    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        for _ in range(10):
            for _ in range(20):
                Parses()
            assert len(parsed(TEXT).body) == 400
            assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
