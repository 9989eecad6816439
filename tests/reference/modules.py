# ruff: noqa: E501
"""Reference modules: honest ones that have to be accepted, and attempts to get out that have to be refused."""

HEAD = "import math\n\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(8, 16)]\n\n\ndef get_init_inputs():\n    return []\n"


def module(forward: str, init: str = "", head: str = HEAD, tail: str = TAIL) -> str:
    """A module whose forward and constructor hold these lines."""
    text = head + "class Model(nn.Module):\n"
    if init:
        lines = "\n".join(f"        {line}" for line in init.split("\n"))
        text += f"    def __init__(self):\n        super().__init__()\n{lines}\n\n"
    lines = "\n".join(f"        {line}" for line in forward.split("\n"))
    return f"{text}    def forward(self, x):\n{lines}\n{tail}"


HONEST = {
    "softmax": module("return torch.softmax(x, dim=1)"),
    "methods": module("return x.exp().sum(dim=-1, keepdim=True).log() + x.mean()"),
    "layer norm by hand": module(
        "mean = x.mean(-1, keepdim=True)\nvar = ((x - mean) ** 2).mean(-1, keepdim=True)\n"
        "return (x - mean) / torch.sqrt(var + 1e-5)"
    ),
    "linear gelu": module("return F.gelu(self.linear(x))", "self.linear = nn.Linear(16, 32)"),
    "parameter": module("return x * self.scale + self.shift",
                        "self.scale = nn.Parameter(torch.ones(16))\nself.register_buffer(\"shift\", torch.zeros(16))"),
    "sequential": module("return self.net(x)", "self.net = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))"),
    "module list": module(
        "for layer in self.layers:\n    x = torch.relu(layer(x))\nreturn x",
        "self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])",
    ),
    "helper class": HEAD + (
        "class Block(nn.Module):\n    def __init__(self, width: int):\n        super(Block, self).__init__()\n"
        "        self.proj = nn.Linear(width, width)\n\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        "        return x + self.proj(x)\n\n\n"
    ) + module("return self.block(x)", "self.block = Block(16)", head=""),
    "constants": module("return x * SCALE", tail="\n\nSCALE = 2.0\nbatch = 8\n" "dim = batch * 2\nfirst, second = 1, 2.5\n\n\ndef get_inputs():\n    return [torch.randn(batch, dim)]\n\n\n"
                        "def get_init_inputs():\n    return []\n"),
    "init inputs": HEAD + (
        "class Model(nn.Module):\n    def __init__(self, features: int, eps: float = 1e-6):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(features))\n        self.eps = eps\n\n"
        "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        "        norm = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)\n        return x * norm * self.weight\n"
        "\n\ndef get_inputs():\n    return [torch.rand(4, 16)]\n\n\ndef get_init_inputs():\n    return [16]\n"
    ),
    "attention": module(
        "scores = x @ x.transpose(-2, -1) / math.sqrt(x.shape[-1])\nreturn torch.softmax(scores, dim=-1) @ x"
    ),
    "branches and slices": module(
        "left, right = x.chunk(2, dim=-1)\nif x.dim() > 1:\n    left = left[:, :4]\nreturn torch.cat([left, right], dim=-1)"
    ),
    "masked": module("return x.masked_fill(x < 0, float(0)) if self.training else torch.where(x > 0, x, torch.zeros_like(x))"),
    "einsum": module("return torch.einsum(\"ij,kj->ik\", x, x)"),
    "loss": module("return F.mse_loss(x, torch.zeros_like(x), reduction=\"mean\")"),
    "docstrings": '"""A scaled sigmoid."""\n\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n'
                  + module('"""Scale, then squash."""\nreturn torch.sigmoid(1.702 * x) * x', head=""),
    "indexed layers": module("return self.layers[0](x) + self.layers[1](x)",
                             "self.layers = nn.ModuleList([nn.Linear(16, 4), nn.Linear(16, 4)])"),
    "several results": module("values = x.max(dim=1)[0]\nindex = torch.argmax(x, dim=1)\nreturn values, index"),
}  # fmt: skip

_ATTEMPTS = {
    "import os": module("return x", head="import os\n" + HEAD),
    "import as": module("return x", head="import subprocess as torch2\n" + HEAD),
    "from os": module("return x", head="from os import system\n" + HEAD),
    "torch.utils": module("return x", head="import torch.utils.cpp_extension\n" + HEAD),
    "from torch import hub": module("return x", head="from torch import hub\n" + HEAD),
    "from torch import load": module("return load('x.pt')", head="from torch import load\n" + HEAD),
    "star": module("return x", head="from torch import *\n" + HEAD),
    "relative": module("return x", head="from . import os\n" + HEAD),
    "import inside": module("import os\nreturn x"),
    "dunder import": module("__import__('os').system('id')\nreturn x"),
    "builtins name": module("return __builtins__['open']('/etc/passwd')"),
    "eval": module("return eval('x')"),
    "exec": module("exec('import os')\nreturn x"),
    "compile": module("return compile('1', 'a', 'eval')"),
    "open": module("return open('/etc/passwd')"),
    "getattr": module("return getattr(torch, 'load')('a')"),
    "setattr": module("setattr(torch, 'relu', x)\nreturn x"),
    "vars": module("return vars(torch)['load']"),
    "globals": module("return globals()['torch']"),
    "class walk": module("return ().__class__.__bases__[0].__subclasses__()"),
    "dunder attribute": module("return x.__class__"),
    "dunder method": module("return x.__reduce_ex__(2)"),
    "torch.load": module("return torch.load('weights.pt')"),
    "torch.save": module("torch.save(x, '/tmp/out')\nreturn x"),
    "torch.hub": module("return torch.hub.load('a/b', 'c')"),
    "torch.ops": module("return torch.ops.aten.relu(x)"),
    "torch.compile": module("return torch.compile(x)"),
    "torch.jit": module("return torch.jit.load('a')"),
    "torch._C": module("return torch._C._cuda_init()"),
    "torch.cuda": module("torch.cuda.synchronize()\nreturn x"),
    "torch.from_file": module("return torch.from_file('/etc/passwd', size=10)"),
    "torch.classes": module("return torch.classes.load_library('a.so')"),
    "alias of a module": module("t = torch\nreturn t.load('a')"),
    "function as a value": module("f = torch.relu\nreturn f(x)"),
    "numpy": module("return x.numpy().tofile('/tmp/a')"),
    "data pointer": module("return x.data_ptr()"),
    "storage": module("return x.untyped_storage()"),
    "hook": module("x.register_hook(print)\nreturn x"),
    "module hook": module("return x", "self.register_forward_hook(self.forward)"),
    "module apply": module("self.apply(x)\nreturn x"),
    "state dict": module("self.load_state_dict(torch.zeros(1))\nreturn x"),
    "own forward": module("return x", "self.forward = nn.ReLU()"),
    "own call": module("return x", "self._call_impl = nn.ReLU()"),
    "torch patched": module("torch.relu = x\nreturn x"),
    "module patched": module("nn.Linear.forward = x\nreturn x"),
    "lambda": module("return (lambda y: y)(x)"),
    "format": module("return '{0.__class__}'.format(x)"),
    "f-string": module("return f'{x}'"),
    "percent": module("return '%s' % x"),
    "decorator": module("return x").replace("class Model", "@torch.compile\nclass Model"),
    "metaclass": module("return x").replace("nn.Module)", "nn.Module, metaclass=type)"),
    "other base": module("return x").replace("(nn.Module)", "(nn.ReLU)"),
    "other method": module("return x").replace(
        "    def forward", "    def __del__(self):\n        pass\n\n    def forward"
    ),
    "class body": module("return x").replace("    def forward", "    y = torch.load('a')\n\n    def forward"),
    "default argument": module("return x").replace("forward(self, x)", "forward(self, x, y=torch.load('a'))"),
    "annotation": module("return x").replace("forward(self, x)", "forward(self, x: torch.load('a'))"),
    "return annotation": module("return x").replace("forward(self, x)", "forward(self, x) -> open('a')"),
    "top call": module("return x", head=HEAD + "torch.manual_seed(0)\n"),
    "top loop": module("return x", head=HEAD + "while True:\n    pass\n"),
    "top function": module("return x", head=HEAD + "def helper():\n    return 1\n\n\n"),
    "while": module("while True:\n    pass\nreturn x"),
    "try": module("try:\n    return x\nexcept Exception:\n    return x"),
    "with": module("with open('a') as f:\n    return x"),
    "global": module("global torch\nreturn x"),
    "nested function": module("def f():\n    return x\nreturn f()"),
    "walrus": module("return (y := x)"),
    "star keywords": module("return torch.relu(x, **x)"),
    "hide range": module("range = x\nreturn x"),
    "hide an import": module("return x", head=HEAD.replace("import math", "import math as range")),
    "wide letters": module("return \uff45val('x')"),
    "homoglyph": module("return x", head=HEAD + "\u0430bs1 = 1\n"),
    "invisible": module("return x  # \u202e"),
    "form feed": module("return x\f"),
    "carriage return": module("return x  # a\rimport os"),
    "long line": module("return x" + " " * 200 + "# end"),
    "huge number": module("return x * 10000000000000000"),
    "tower": module("return x * 9 ** 9 ** 9"),
    "shift": module("return x * (1 << 99999999)"),
    "key function": module("return max([x], key=torch.abs)"),
    "del": module("del x\nreturn self.y"),
    "yield": module("yield x"),
    "await": module("return await x"),
    "no inputs": module("return x", tail=""),
    "syntax": module("return ("),
    "null": module("return x\0"),
    "deep": module("return " + "(" * 60 + "x" + ")" * 60 + "+" + "-" * 60 + "x"),
    "private self": module("return self._parameters"),
    "dtype module": module("return torch.Tensor.numpy(x)"),
    "super trick": module("return super().__getattribute__('x')"),
    "match": module("match x:\n    case 1:\n        return x"),
    "set dict": module("return {1: x}"),
    "print": module("print(x)\nreturn x"),
    "input": module("return input()"),
    "vmap": module("return torch.vmap(x)"),
    "autograd": module("return torch.autograd.grad(x, x)"),
    "nn.utils": module("return nn.utils.parametrize.cached()"),
    "data parallel": module("return nn.DataParallel(self)(x)"),
}
ATTEMPTS = _ATTEMPTS
