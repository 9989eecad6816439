"""Small modules that no single region computes, as problem files."""

from __future__ import annotations

from pathlib import Path

MODULES: dict[str, tuple[str, str, str]] = {
    # name: constructor, forward, inputs
    "mlp": (
        "self.a = nn.Linear(24, 40)\nself.b = nn.Linear(40, 12)",
        "return self.b(torch.relu(self.a(x)))",
        "torch.randn(5, 24)",
    ),
    "convolutions": (
        "self.a = nn.Conv2d(3, 8, 3, padding=1)\nself.b = nn.Conv2d(8, 8, 3, padding=1)\n"
        "self.c = nn.Conv2d(8, 8, 3, padding=1)\nself.bn = nn.BatchNorm2d(8)",
        "x = torch.relu(self.bn(self.a(x)))\ny = torch.relu(self.b(x))\nreturn torch.tanh(self.c(y)) + x",
        "torch.randn(2, 3, 9, 7)",
    ),
    "norm_and_pool": (
        "self.a = nn.Conv3d(2, 6, 3)\nself.gn = nn.GroupNorm(3, 6)\nself.pool = nn.MaxPool3d(2)",
        "return self.pool(self.gn(self.a(x)).sigmoid()).mean(dim=(2, 3, 4))",
        "torch.randn(2, 2, 9, 8, 7)",
    ),
    "transposed_convolutions": (
        "self.a = nn.ConvTranspose2d(3, 5, 3, stride=2)\nself.b = nn.ConvTranspose2d(5, 4, 2, bias=False)",
        "return torch.relu(self.b(torch.tanh(self.a(x)))).flatten(2)",
        "torch.randn(2, 3, 4, 5)",
    ),
    "recurrent": (
        "self.a = nn.LSTM(6, 5, 2, batch_first=True)\nself.b = nn.GRU(5, 4, bidirectional=True, batch_first=True)",
        "y = self.b(self.a(x)[0])[0]\nreturn torch.tanh(y[:, -1]), y.sum(1)",
        "torch.randn(3, 7, 6)",
    ),
    "shifted_windows": (
        "self.a = nn.Linear(6, 6)",
        "y = torch.roll(nn.functional.pad(x, (0, 0, 1, 2), value=0.5), (-1, 3), (1, 2))\n"
        "return torch.roll(self.a(y), 1, 1)[:, 1:4] + torch.softmax(nn.functional.pad(x, (2, 0)), 2)[:, :3, :6]",
        "torch.randn(4, 5, 6)",
    ),
    "two_axes": ("pass", "return torch.softmax(x, dim=1).amax(dim=0)", "torch.randn(11, 13)"),
    "transposed": (
        "self.w = nn.Parameter(torch.randn(7, 9))",
        "return (x @ self.w.t()).transpose(1, 2) * 2",
        "torch.randn(3, 5, 9)",
    ),
    "reshaped_products": (
        "self.w = nn.Parameter(torch.randn(9, 7))",
        "y = x @ self.w\nreturn y, torch.einsum('bijl,lk->bijk', x[None], self.w)",
        "torch.randn(3, 5, 9)",
    ),
    "reshaped_and_read": (
        "self.w = nn.Parameter(torch.randn(9, 7))",
        "y = x @ self.w\nreturn y, y.sum(1), y.transpose(1, 2)",
        "torch.randn(3, 5, 9)",
    ),
    "vector_between": (
        "self.a = nn.Linear(24, 1)\nself.b = nn.Linear(1, 12)",
        "return torch.softmax(self.b(torch.relu(self.a(x))), dim=1)",
        "torch.randn(5, 24)",
    ),
    "joined": (
        "self.a = nn.Linear(6, 6)",
        "y = self.a(x)\nreturn torch.cat([y, x[:, 1:4]], dim=1).flip(1).cumsum(1)",
        "torch.randn(4, 6)",
    ),
    "many_outputs": (
        "self.a = nn.Linear(6, 8)",
        "y = self.a(x)\nreturn y, y.sum(1), x, y, y.view(4, 2, 4)",
        "torch.randn(4, 6)",
    ),
    "attention": (
        "self.a = nn.MultiheadAttention(16, 4, batch_first=True)\nself.n = nn.LayerNorm(16)",
        "y = self.n(x)\nreturn x + self.a(y, y, y)[0]",
        "torch.randn(2, 6, 16)",
    ),
    "patches": (
        "self.a = nn.Linear(12, 5)",
        "y = x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(2, -1, 12)\nreturn torch.tanh(self.a(y))",
        "torch.randn(2, 3, 4, 6)",
    ),
    "half_product": (
        "self.w = nn.Parameter(torch.randn(13, 9).half())",
        "return torch.relu(x @ self.w)",
        "torch.randn(7, 13).half()",
    ),
    "looked_up": (
        "self.e = nn.Embedding(10, 6)",
        "return nn.functional.cross_entropy(self.e(x) * 2, x % 6)",
        "torch.randint(0, 10, (7,))",
    ),
}


def written(folder: Path, name: str) -> Path:
    """The file of a module."""
    return module_file(folder, name, *MODULES[name])


def module_file(folder: Path, name: str, constructor: str, forward: str, inputs: str) -> Path:
    """The file of a module of one input, from the text of its parts."""

    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.split("\n"))

    path = folder / f"{name}.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{indented(constructor)}\n\n    def forward(self, x):\n{indented(forward)}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return path
