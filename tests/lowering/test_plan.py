"""The plan states floors and says in words what will be computed."""

from __future__ import annotations

from lowering.graphs import graph_of

from warpsmith.kernels.plan import plan


def test_floors_and_kind() -> None:
    made = plan(graph_of("softmax_last", "4096,1024"), "softmax")
    assert made.kind == "reduce-map"
    assert made.floor_bytes == 2 * 4 * 4096 * 1024
    assert made.unfused_bytes > made.floor_bytes
    assert [facts.pattern for facts in made.nodes].count("reduction") == 2
    assert made.nodes[0].shape == (4096, 1)


def test_the_text_shows_axes_rounds_and_stores() -> None:
    text = plan(graph_of("softmax_last", "4096,1024"), "softmax").describe()
    assert text.startswith("softmax: one reduce-map region of 5 operators")
    for part in (
        "kept k0:4096; reduced r0:1024",
        "red0 = max(x0)",
        "red1 = sum(v1)",
        "out0[k0 * 1024 + r0] = v2",
    ):
        assert part in text


def test_a_matmul_shows_its_product_and_epilogue() -> None:
    made = plan(graph_of("linear_gelu", "5,7", "6,7", "6"))
    assert made.kind == "matmul"
    assert "batch 1, m 5, n 6, k 7" in made.describe()
    assert "acc = sum over k of x0 * x1" in made.describe()
