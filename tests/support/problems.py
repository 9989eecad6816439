"""Problem files that are wrong in one way each, and small good ones, as text."""

HEAD = "import torch\nimport torch.nn as nn\n\n"
MODEL = "class Model(nn.Module):\n    def forward(self, x):\n        return {body}\n\n"
TAIL = "rows = 4\ncols = 64\n\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"


def problem(body: str = "torch.relu(x)", inputs: str = "torch.rand(rows, cols)") -> str:
    """A KernelBench-style file around one expression of `x`."""
    return HEAD + MODEL.format(body=body) + TAIL.format(inputs=inputs)


WRONG = {
    "syntax error": ("def broken(:\n", "line 1"),
    "raises on import": (HEAD + "value = 1\nraise RuntimeError('no luck')\n", "no luck"),
    "lacks Model": (HEAD + "def get_inputs():\n    return []\n", "Model"),
    "lacks get_inputs": (HEAD + MODEL.format(body="x"), "get_inputs"),
    "returns no tensors": (problem("3"), "tensor"),
    "inputs hold no tensor": (problem(inputs="1, 2"), ""),
    "forward raises": (problem("x @ x"), ""),
    "no family": (problem("torch.sort(x, 1)[0]"), "sort"),
    "transform": (problem("torch.fft.rfft(x).abs()"), "fft"),
    "short integer input": (problem("x + 1", "torch.arange(8).to(torch.int16)"), "int16"),
    "byte input": (problem("x + 1", "torch.arange(8).to(torch.uint8)"), "uint8"),
    "double input": (problem(inputs="torch.rand(4, 8).double()"), "float64"),
}
