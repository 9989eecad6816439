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


_BLOCK = (
    "\n\nclass Block(nn.Module):\n    def __init__(self, width: int):\n        super().__init__()\n        self.width = width\n"
    "        self.proj = nn.Linear(width, width)\n\n    def forward(self, y):\n        return y + self.proj(y)\n"
)

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
    "comprehensions": module(
        "parts = [layer(x) for layer in self.layers]\nwidths = [part.shape[1] for part in parts if part.dim() == 2]\n"
        "return sum(part.mean() for part in parts) * float(max(widths))",
        "self.layers = nn.ModuleList([nn.Linear(16, width) for width in (2, 4)])",
    ),
    "powers": module("return ((x ** 2).sum(-1, keepdim=True) ** 0.5 + 2.0 ** x.shape[0]) ** -1 + x ** 3 % 2"),
    "types by name": module("return x", head=HEAD + "from torch import Tensor\nfrom torch.nn import Module\n").replace(
        "(nn.Module)", "(Module)").replace("forward(self, x)", "forward(self, x: Tensor) -> Tensor"),
    "encoding": "# -*- coding: utf-8 -*-\n" + module("return x.abs()"),
    "several names": module("return x * height", head=HEAD + "height = width = 2 ** 4\n"),
    "dtypes": module("return x.to(torch.float64).to(dtype=torch.float32) * torch.pi + math.e"),
    "loops": module("total = x\nfor step in range(3):\n    total = total * 0.5 + x * step\nreturn total"),
    "long line": module("return x" + " + x" * 35),
    "accents in a comment": module('"""Größe in µm: 5 × 3."""\nreturn x  # naïve, e\u0301, 漢字'),
    "class afterwards": module("return self.block(x)", "self.block = Block(16)") + _BLOCK,
    "helper function": module("return scaled(swish(x), by=2.0)", head=HEAD + (
        "def scaled(y, *, by: float = 1.0):\n    return y * by\n\n\n"
    )) + "\n\ndef swish(y: torch.Tensor) -> torch.Tensor:\n    return y * torch.sigmoid(y)\n",
    "helper methods": HEAD + (
        "class Model(nn.Module):\n    expansion: int = 2\n    sizes = (8, 4)\n\n    def __init__(self):\n        super().__init__()\n"
        "        self.width = 16\n        self.net = self.make_layers(self.expansion)\n"
        "        self.weight = nn.Parameter(torch.empty(16))\n        self.reset()\n\n"
        "    def make_layers(self, count: int):\n        layers = []\n        for size in self.sizes[:count]:\n"
        "            layers.append(nn.Linear(self.width, size))\n            self.width = size\n        return nn.Sequential(*layers)\n\n"
        "    def reset(self):\n        nn.init.uniform_(self.weight, -nn.init.calculate_gain(\"relu\"), 1.0)\n\n"
        "    def scaled(self, y):\n        return y * self.weight\n\n"
        "    def forward(self, x):\n        return self.net(self.scaled(x))\n"
    ) + TAIL,
    "typing": module("return x, x.sum()", head=HEAD + "from typing import List, Optional, Sequence, Tuple\n\n\n").replace(
        "(self, x)", "(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None, dims: Sequence[int] = (1,)) -> Tuple[torch.Tensor, ...]"
    ),
    "fields": module("top = x.topk(2, dim=-1)\nreturn x.max(dim=1).values, x.sort(dim=1).indices, top.values"),
    "in place": module(
        "y = x.clone()\ny.masked_fill_(y < 0, 0.0)\ny.pow_(2).sqrt_().clamp_min_(0.1)\nz = torch.zeros_like(x)\nz.copy_(y)\n"
        "z.scatter_(1, x.argmax(1, keepdim=True), 1.0)\nz.index_add_(0, torch.tensor([0]), y[:1])\nreturn z"
    ),
    "starred": module("batch, *rest = x.shape\nreturn x.reshape(batch, -1) * len(rest)"),
    "annotated constant afterwards": module("return x * WIDTH") + "\n\nWIDTH: float = 2.0\n",
    "limits": module("return x.masked_fill(x < 0, torch.finfo(x.dtype).min) + torch.finfo(torch.float32).eps"),
    "attribute of a submodule": module("return self.block(x) * self.block.width", "self.block = Block(16)") + _BLOCK,
    "new names": module(
        "y = F.dropout2d(x.view(1, 8, 4, 4), 0.1, self.training).view(8, 16) + torch.logit(torch.sigmoid(x)) + torch.digamma(x.abs() + 1) + torch.i0(x)\n"
        "y = y + torch.heaviside(x, x) + torch.threshold(x, 0.0, 0.0) + torch.float_power(x, 2).float() + torch.hamming_window(16)\n"
        "a = torch.block_diag(x, x)[:8, :16] + torch.scatter_reduce(x, 0, torch.zeros_like(x).long(), x, \"sum\")\n"
        "b, c = torch.tensor_split(x, 2)\nsquare = x @ x.T + torch.eye(8) * 9.0\n"
        "d = torch.linalg.multi_dot([torch.linalg.inv(square), torch.linalg.matmul(x, x.T), torch.linalg.solve(square, x)])\n"
        "return y + a + d + torch.linalg.det(square) + torch.isclose(x, y).float() + b.sum() * c.sum()"
    ),
    "new layers": module(
        "image = x.view(1, 2, 8, 8)\nimage = self.shuffle(self.drop(self.pad(image)))\nimage = self.up(self.pool(image)) + F.lp_pool2d(image, 2, 1)[:, :, :10, :10]\n"
        "grid = F.affine_grid(torch.eye(2, 3).unsqueeze(0), [1, 2, 8, 8], align_corners=False)\n"
        "return F.grid_sample(image, grid, align_corners=False)",
        "self.pad = nn.CircularPad2d(1)\nself.drop = nn.AlphaDropout(0.1)\nself.shuffle = nn.ChannelShuffle(2)\n"
        "self.pool = nn.LPPool2d(2, 2)\nself.up = nn.UpsamplingNearest2d(scale_factor=2)",
    ),
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
    "top function decorated": module("return x", head=HEAD + "@torch.compile\ndef helper(y):\n    return y\n\n\n"),
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
_LOOP = "y = [eval for eval in [1]]\n"
_ESCAPES = {
    "comprehension name called": module(
        "return x", 'self.a = [1.0]\ny = [eval for eval in self.a]\nself.b = eval("1")'
    ),
    "comprehension name as key": module(_LOOP + 'z = max(["1"], key=eval)\nreturn x'),
    "comprehension name kept": module("return x", _LOOP + 'self.f = eval\nself.f("1")'),
    "comprehension name listed": module("return x", _LOOP + 'self.f = [eval]\nself.f[0]("1")'),
    "comprehension name returned": module(_LOOP + "return eval"),
    "comprehension name in a module": module("return x", _LOOP + "self.net = nn.Sequential(eval)"),
    "comprehension name iterated": module("return x", _LOOP + 'self.f = [eval]\nfor g in self.f:\n    g("1")'),
    "generator name": module('y = sum(open for open in [1])\nreturn open("a")'),
    "nested comprehension": module("y = [[exec for exec in [z]] for z in [1]]\nreturn max([x], key=exec)"),
    "comprehension condition": module("y = [z for z in [1] if [exec for exec in [1]]]\nz = exec\nreturn x"),
    "tuple target": module('y = [a for a, compile in [(1, 2)]]\nreturn compile("1", "a", "eval")'),
    "attribute target": module("return x", "y = [0 for self.f in [1]]\nself.f(1)"),
    "subscript target": module("y = [1]\nz = [0 for y[0] in [1]]\nreturn x"),
    "own comprehension name": module("y = [g for g in [1]]\nreturn g(x)"),
    "first iterable": module("return [z for z in z]"),
    "for name": module('for eval in []:\n    pass\nreturn eval("1")'),
    "other branch": module('if x.dim() > 9:\n    eval = 1\nreturn max(["1"], key=eval)'),
    "assigned afterwards": module('y = max(["1"], key=open)\nopen = 1\nreturn x'),
    "argument": module('return eval("1")').replace("(self, x)", "(self, x, eval=1)"),
    "input as argument": module("return input").replace("(self, x)", "(self, input)"),
    "keyword argument": module("return eval").replace("(self, x)", "(self, x, *, eval=1)"),
    "module constant": module("return max([x], key=eval)", tail=TAIL + "\n\neval = 1\n"),
    "annotated constant": module("return x", head=HEAD + "eval: int = 1\n"),
    "class named so": HEAD
    + "class eval(nn.Module):\n    def forward(self, x):\n        return x\n\n\n"
    + module("return x", head=""),
    "import named so": module("return pow", head=HEAD + "from math import pow\n"),
    "import as so": module("return x", head=HEAD + "from torch import relu as open\n"),
    "import as private": module("return x", head=HEAD + "import torch as _torch\n"),
    "int as a value": module("return x.to(float)"),
    "range as a value": module("return x", "self.f = range\nself.f(3)"),
    "len as a key": module("return max([x], key=len)"),
    "type": module("return type(x)"),
    "isinstance": module("return isinstance(x, torch.Tensor)"),
    "super argument": module("return x").replace(
        "    def forward",
        "    def __init__(self):\n        super(Model, self, open('a')).__init__()\n\n    def forward",
    ),
    "super star": module("return x").replace(
        "    def forward",
        "    def __init__(self):\n        super(Model, self, *eval('[]')).__init__()\n\n    def forward",
    ),
    "super kept": module("return x", "y = super()\nself.y = y"),
    "super attribute": module("return x", "self.y = super().__init__"),
    "super of another": module("return x", "super(nn.Linear, self).__init__()"),
    "super value": module("return x", "self.y = super(Model, self).weight"),
    "class as a value": module("return x", "self.t = Model"),
    "class attribute": module("return Model.weight"),
    "maker as a value": module("return x", "self.t = get_inputs"),
    "maker called": module("return get_inputs()[0]"),
    "class for a maker": module("return x")
    + "\n\nclass get_inputs(nn.Module):\n    def forward(self, x):\n        return x\n",
    "Model a number": module("return x").replace("class Model", "class Mod") + "\n\nModel = 5\n",
    "Model a type": module("return x").replace("class Model", "class Mod") + "\n\nModel = torch.Tensor\n",
    "Tensor as a value": module("return x", "self.t = torch.Tensor\nself.b = self.t(cdata=4096)"),
    "Tensor called": module("return torch.Tensor(cdata=4096)"),
    "Tensor imported": module("return Tensor(cdata=4096)", head=HEAD + "from torch import Tensor\n"),
    "Tensor renamed": module("return [T][0](cdata=4096)", head=HEAD + "from torch import Tensor as T\n"),
    "Tensor constant": module("return x", head=HEAD + "T = torch.Tensor\n"),
    "Tensor default": module("return x").replace("(self, x)", "(self, x, t=torch.Tensor)"),
    "Module called": module("return nn.Module()"),
    "Module as a value": module("return [nn.Module]"),
    "typed tensor": module("return torch.FloatTensor(cdata=1)"),
    "from_file": module("return x.from_file('a')"),
    "frombuffer": module("return torch.frombuffer(x)"),
    "as_subclass": module("return x.as_subclass(x)"),
    "set_": module("return x.set_(x)"),
    "as_strided": module("return torch.as_strided(x, (9999,), (1,))"),
    "resize_": module("return x.resize_(99999)"),
    "apply_": module("return x.apply_(abs)"),
    "map_": module("return x.map_(x, max)"),
    "tolist": module("return x.tolist()"),
    "data": module("return x.data"),
    "grad_fn": module("return x.grad_fn.metadata"),
    "backward hook": module("x.register_post_accumulate_grad_hook(abs)\nreturn x"),
    "torch.library": module("return torch.library.custom_op(x)"),
    "torch.serialization": module("return torch.serialization.load('a')"),
    "module in a module": module("return F.torch.load('a')"),
    "nn.modules": module("return nn.modules.linear.torch.load('a')"),
    "module's builtins": module("return F.__builtins__"),
    "module's loader": module("return math.__loader__"),
    "math through F": module("return F.math.sqrt(2)"),
    "init module": module("return x", "nn.init.torch.load(x)"),
    "init as a value": module("return x", "self.f = nn.init.zeros_"),
    "aliased function": module("return max([x], key=relu)", head=HEAD + "from torch import relu\n"),
    "aliased space": module("return linalg", head=HEAD + "from torch import linalg\n"),
    "bound method": module("f = x.abs\nreturn x"),
    "own method": module("return self.forward"),
    "stored on a layer": module(
        "for layer in self.layers:\n    layer.weight = x\nreturn x", "self.layers = [nn.ReLU()]"
    ),
    "stored on a space": module("F.relu = 1\nreturn x"),
    "loop into a space": module("for F.relu in [1]:\n    pass\nreturn x"),
    "power of constants": module("return x", head=HEAD + "A = 1099511627776\nB = A**A\n"),
    "power of a name": module("return x * 2 ** x.shape[0]"),
    "power step by step": module("return x", head=HEAD + "A = 9\nB = A**64\nC = B**64\n"),
    "power of a power": module("return x * (9 ** 64 + 1) ** 64"),
    "power assigned": module("n = 9\nn **= n\nreturn x"),
    "negative tower": module("return x * 9 ** -(9 ** 9)"),
    "format in a name": module("y = B % 1\nreturn x", head=HEAD + 'B = "%9999999999d"\n'),
    "format assigned": module('y = "%9999999999d"\ny %= 1\nreturn x'),
    "format of an attribute": module("return x", 'self.f = "{0.__class__}"'),
    "format method": module("return B.format(x)", head=HEAD + 'B = "a"\n'),
    "format_map": module("return 'a'.format_map(x)"),
    "translate": module("return 'a'.translate(x)"),
    "nested f-string": module("return f'{x!r:>{x.shape}}'"),
    "bytes": module("return b'a'"),
    "utf-7": "# -*- coding: utf-7 -*-\n# +AAo-import os\n" + module("return x"),
    "second line's encoding": "#\n#vim:fileencoding=utf_16\n" + module("return x"),
    "byte order mark": "\ufeff" + module("return x"),
    "surrogate": module("return x  # \ud800"),
    "line separator": module("return x  # \u2028import os"),
    "nonlocal": module("nonlocal x\nreturn x"),
    "class decorator": module("return x").replace("    def forward", "    @property\n    def forward"),
    "static": module("return x").replace("    def forward", "    @staticmethod\n    def forward"),
    "slots": module("return x").replace("    def forward", "    __slots__ = ('a',)\n\n    def forward"),
    "getattr method": module("return x").replace(
        "def forward", "def __getattr__(self, a):\n        return a\n\n    def forward"
    ),
    "base expression": module("return x").replace("(nn.Module)", "([nn.Module][0])"),
    "second base": module("return x").replace("(nn.Module)", "(nn.Module, nn.ReLU)"),
    "base from a call": module("return x").replace("(nn.Module)", "(type('a', (), {}))"),
    "async": module("return x").replace("    def forward", "    async def forward"),
    "async comprehension": module("return [y async for y in x]"),
    "yield from": module("yield from x"),
    "type parameters": module("return x").replace("def forward(", "def forward[T: open('a')]("),
    "class parameters": module("return x").replace("class Model(", "class Model[T]("),
    "string annotation": module("return x").replace("(self, x)", "(self, x: 'open(1)')"),
    "annotated attribute": module("return x", "self.y: open('a') = 1"),
    "annotation of a local": module("y: eval('int') = 1\nreturn x"),
    "star call": module("return torch.relu(*[eval])"),
    "raise": module("raise ValueError(x)"),
    "except name": module("try:\n    pass\nexcept OSError as e:\n    return e.args\nreturn x"),
    "with name": module("with x as eval:\n    pass\nreturn eval('1')"),
    "walrus in a comprehension": module("y = [(eval := z) for z in [1]]\nreturn eval('1')"),
    "lambda argument": module("y = lambda eval: eval\nreturn eval('1')"),
    "dictionary comprehension": module("return {eval: 1 for eval in [1]}"),
    "set comprehension": module("return {eval for eval in [1]}"),
    "assert": module("assert eval('1')\nreturn x"),
    "type alias": module("type y = eval('1')\nreturn x"),
    "slice": module("return x[eval('1'):]"),
    "keyword private": module("return nn.Embedding(4, 4, _weight=x)"),
    "register a method": module("return x", 'self.register_buffer("forward", torch.ones(1))'),
    "register by star": module("return x", 'self.register_buffer(*["forward", x])'),
    "spec": module("return __spec__"),
    "loader kept": module("return [__loader__ for y in x]"),
}
_HELPER = "def helper(y):\n    return y\n\n\n"


def helped(forward: str, method: str = "", init: str = "") -> str:
    """A module with a helper function, and with a method of its class that holds these lines."""
    text = module(forward, init or "self.count = 0\nself.items = [0]", head=HEAD + _HELPER)
    return text.replace("    def forward", f"{method}\n\n    def forward") if method else text


_STATE = {
    "list of the module": module("N[0] = N[0] + 1\nreturn x * N[0]", head=HEAD + "N = [0]\n"),
    "list in a tuple": module("return x", head=HEAD + "N = (1, [0])\n"),
    "list of a class": helped("return x", "    items = [0]"),
    "list as a default": module("s.append(1)\nreturn x * len(s)").replace("(self, x)", "(self, x, s=[])"),
    "list as a helper's default": module("return x", head=HEAD + "def helper(y, s=[]):\n    return y\n\n\n"),
    "list of self grows": helped("self.items.append(1)\nreturn x * len(self.items)"),
    "list of self set": helped("self.items[0] = 1\nreturn x"),
    "number of self": helped("self.count = self.count + 1\nreturn x * self.count"),
    "number of self added to": helped("self.count += 1\nreturn x * self.count"),
    "loop into self": helped("for self.count in [1, 2]:\n    pass\nreturn x"),
    "starred into self": helped("a, *self.items = x.shape\nreturn x"),
    "through a method": helped("return x * self.step()", "    def step(self):\n        self.count = self.count + 1\n        return self.count"),
    "through two methods": helped(
        "return x * self.one()",
        "    def one(self):\n        return self.two()\n\n    def two(self):\n        self.items.extend([1])\n        return 1",
    ),
    "stale memory": module("return x + torch.empty(16)"),
    "stale memory by a method": module("return x + x.new_empty(16)"),
    "stale memory by name": module("return x + empty_like(x)", head=HEAD + "from torch import empty_like\n"),
    "stale memory by a helper": module("return helper(x)", head=HEAD + "def helper(y):\n    return y + torch.empty(16)\n\n\n"),
}  # fmt: skip
_SHOWN = {
    "filler": "# a\u3164b\n" + module("return x"),
    "jamo filler": "# a\u115f\u1160b\n" + module("return x"),
    "half width filler": "# a\uffa0b\n" + module("return x"),
    "braille blank": "# a\u2800b\n" + module("return x"),
    "joiner": "# a\u034fb\n" + module("return x"),
    "variation selector": "# a\ufe0fb\n" + module("return x"),
    "stacked marks": "# a" + "\u0336" * 50 + "\n" + module("return x"),
    "enclosing mark": "# a\u20dd\n" + module("return x"),
    "Hebrew in a comment": "# \u05d0\n" + module("return x"),
    "Arabic digits": "# \u0661\n" + module("return x"),
    "Hebrew in a string": module('y = [x, "\u05d0", 1]\nreturn y[0]'),
    "accent in a string": module('return torch.einsum("é", x)'),
    "accent behind a docstring": module('"""é"""; y = "é"\nreturn x'),
    "escape in a string": module('return x.to("\\x1b[31m")'),
    "surrogate in a string": module('return x, "\\ud800"'),
    "wide method": module("return x.\uff45xp()"),
}
_NESTED = "\n".join(f"{' ' * turn}try:\n{' ' * turn} pass\n{' ' * turn}finally:" for turn in range(30))
_UNCOMPILED = {
    "nested finally": module(f"{_NESTED}\n{' ' * 30}pass\nreturn x"),
    "argument twice": module("return x").replace("(self, x)", "(self, x, x)"),
    "break outside": module("break\nreturn x"),
    "continue outside": module("if x.dim() > 1:\n    continue\nreturn x"),
    "late future": module("return x") + "\nfrom __future__ import annotations\n",
    "starred return": module("y = *x\nreturn y"),
    "two starred": module("a, *b, *c = x.shape\nreturn x"),
}
_HELPERS = {
    "Model a function": module("return x").replace("class Model", "class Mod") + "\n\ndef Model():\n    return 1\n",
    "helper as a value": helped("f = helper\nreturn f(x)"),
    "helper as a key": helped("return max([x], key=helper)"),
    "helper kept": helped("return self.f(x)", init="self.f = helper"),
    "helper in a list": helped("return [helper][0](x)"),
    "helper in Sequential": helped("return x", init="self.net = nn.Sequential(helper)"),
    "helper stored": helped("helper = x\nreturn helper(x)"),
    "helper in a comprehension": helped("return [helper for helper in [x]][0]"),
    "helper as an argument": helped("return helper(x)").replace("(self, x)", "(self, x, helper)"),
    "helper's attribute": helped("return helper.__globals__"),
    "helper's code": helped("return helper.func_globals"),
    "helper twice": helped("return x") + "\n\ndef helper(y):\n    return y\n",
    "helper named as a class": module("return x") + _BLOCK + "\n\ndef Block(y):\n    return y\n",
    "helper named eval": module("return eval(x)") + "\n\ndef eval(y):\n    return y\n",
    "helper named torch": module("return torch(x)") + "\n\ndef torch(y):\n    return y\n",
    "helper named private": module("return x") + "\n\ndef __getattr__(y):\n    return y\n",
    "helper calls its argument": module("return x", head=HEAD + "def helper(f, y):\n    return f(y)\n\n\n"),
    "helper with self": module("return x", head=HEAD + "def helper(self):\n    return self.a\n\n\n"),
    "helper in a helper": module("return x", head=HEAD + "def helper(y):\n    def inner():\n        return y\n    return inner()\n\n\n"),
    "helper's default": module("return x", head=HEAD + "def helper(y, f=open):\n    return y\n\n\n"),
    "helper's star": module("return x", head=HEAD + "def helper(*y):\n    return y\n\n\n"),
    "helper renamed by an import": module("return helper(x)", head=HEAD + _HELPER + "from torch import load as helper\n"),
    "global of a helper": module("return x", head=HEAD + "def helper(y):\n    global torch\n    torch = y\n\n\n"),
    "method as a value": helped("f = self.step\nreturn f(x)", "    def step(self, y):\n        return y"),
    "method as a key": helped("return max([x], key=self.step)", "    def step(self, y):\n        return y"),
    "method of another": helped("return x.step(x)", "    def step(self, y):\n        return y"),
    "method of a submodule": helped("return self.a.step(x)", "    def step(self, y):\n        return y", "self.a = nn.ReLU()"),
    "method replaced": helped("return self.step(x)", "    def step(self, y):\n        return y", "self.step = nn.ReLU()"),
    "method of the class": helped("return Model.step(x)", "    def step(self, y):\n        return y"),
    "method without self": helped("return x", "    def step(y):\n        return y"),
    "method decorated": helped("return x", "    @property\n    def step(self):\n        return 1"),
    "method with another self": helped("return x", "    def step(this, self):\n        return self.apply(this)"),
    **{
        f"method {name}": helped("return x", f"    def {name}(self, y):\n        return y")
        for name in (
            *("apply", "register_forward_hook", "state_dict", "load_state_dict", "__call__", "_call_impl", "__getattr__"),
            *("__del__", "__reduce__", "__torch_function__", "train", "to", "extra_repr", "get_extra_state", "named_parameters"),
            *("detach", "shape", "values", "append", "weight", "abs", "open", "print"),
        )
    },
    "class constant called": helped("return self.f(x)", "    f = torch.load"),
    "class constant a function": helped("return self.f(x)", "    f = helper"),
    "class constant private": helped("return x", "    __slots__ = (1,)"),
    "class constant of torch's": helped("return x", "    call_super_init = True"),
    "class constant forward": helped("return x", "    train = 1"),
    "class constant declared": helped("return x", "    y: int"),
    "typing called": module("return Optional(x)", head=HEAD + "from typing import Optional\n"),
    "typing as a value": module("return [Optional]", head=HEAD + "from typing import Optional\n"),
    "typing subscripted": module("return Optional[x]", head=HEAD + "from typing import Optional\n"),
    "typing as a base": module("return x", head=HEAD + "from typing import List\n").replace("(nn.Module)", "(List)"),
    "typing module": module("return x", head="import typing\n" + HEAD),
    "typing's others": module("return x", head=HEAD + "from typing import get_type_hints\n"),
    "typing's sys": module("return x", head=HEAD + "from typing import sys\n"),
    "typing evaluates": module("return x", head=HEAD + "from typing import Optional\n").replace("(self, x)", "(self, x: Optional['open(1)'])"),
    "generator's frame": module("return (y for y in x).gi_frame"),
    "generator's frame set elsewhere": module("return self.g.gi_frame", "self.g = (y for y in [1])\nself.gi_frame = 1"),
    "generator sent to": module("return self.g.send", "self.g = (y for y in [1])\nself.send = 1"),
    "limits kept": module("return self.f.min", "self.f = torch.finfo(torch.float32)"),
    "limits' other": module("return torch.finfo(x.dtype).dtype"),
    "tensor's min": module("f = x.min\nreturn x"),
    "shared name of a tensor": module("f = x.abs\nreturn x", "self.abs = 1"),
    "shared name through a value": module("return x.width", "self.block = Block(4)") + _BLOCK,
    "self imported": module("return x") + "\n\nimport torch as self\n",
    "self a constant": module("return x", head=HEAD + "self = 1\n"),
    "self assigned": module("self, y = 1, 2\nreturn x"),
    "starred function": module("a, *torch.relu = x.shape\nreturn x"),
    "starred name": module("a, *eval = x.shape\nreturn eval(1)"),
}  # fmt: skip
ATTEMPTS = _ATTEMPTS | _ESCAPES | _STATE | _SHOWN | _UNCOMPILED | _HELPERS
