"""What the region tests compute, as a user would write it."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def softmax_last(x):
    return x.softmax(-1)


def softmax_middle(x):
    return x.softmax(1)


def log_softmax_first(x):
    return x.log_softmax(0)


def layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layer_norm_slab(x, w, b):
    return F.layer_norm(x, x.shape[1:], w, b)


def rms_norm(x):
    return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)


def softmax_of_planes_in_turn(x):
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)[:, :, 1:-1].softmax(1)


def group_norm(x, w, b):
    return F.group_norm(x, 2, w, b)


def batch_statistics(x):
    return F.batch_norm(x, None, None, training=True)


def instance_norm(x):
    return F.instance_norm(x)


def l1_norm(x):
    return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def l2_norm(x):
    return x / torch.norm(x, p=2, dim=1, keepdim=True)


def l3_norm(x):
    return x / torch.linalg.vector_norm(x, 3, dim=1, keepdim=True)


def frobenius(x):
    return x / torch.norm(x, p="fro")


def sum_first(x):
    return x.sum(0)


def sum_middle(x):
    return x.sum(1, keepdim=True)


def sum_outer_pair(x):
    return x.sum((0, 2))


def mean_all(x):
    return x.mean()


def max_middle(x):
    return torch.max(x, dim=1)[0]


def max_and_position(x):
    return torch.max(x, dim=1)


def min_last(x):
    return torch.min(x, dim=-1)[0]


def argmax_first(x):
    return x.argmax(0)


def argmin_middle(x):
    return x.argmin(1, keepdim=True)


def argmax_all(x):
    return x.argmax()


def argmax_of_permuted(x):
    return x.permute(2, 0, 1).argmax()


def product(x):
    return x.prod(2)


def any_and_all(x):
    return (x > 0.9).any(1), (x > 0.1).all(1)


def count(x):
    return (x > 0).sum(1)


def variance(x):
    return x.var(1), x.std(1, correction=0)


def log_sum_exp(x):
    return x.logsumexp(1)


def mse(x, y):
    return torch.mean((x - y) ** 2)


def huber(x, y):
    return F.smooth_l1_loss(x, y)


def kl(x, y):
    return F.kl_div(torch.log(x.abs() + 0.1), y.abs() + 0.1, reduction="batchmean")


def hinge(x, t):
    return torch.mean(torch.clamp(1 - x * t, min=0))


def two_reductions_and_map(x):
    return x * 2, x.sum(1), x.amax(1).t(), x.permute(1, 0, 2) + 1


def permuted_reduction(x):
    return x / x.permute(0, 2, 1).sum((1, 2))[:, None, None]


def sliced_result(x):
    return x.sum(1)[:, 1:4] * 2


def flipped_softmax(x):
    return x.flip(1).softmax(1)


def padded(x):
    return F.pad(x.exp(), (2, 1, 0, 0, 0, 3), value=1.5) * 2


def cut_and_padded(x):
    return F.pad(x, (-1, 2, 3, -4))


def padded_softmax(x):
    return F.pad(x, (1, 2), value=-1.0).softmax(1)


def padded_flags(x):
    return F.pad(x > 0, (1, 1), value=True), F.pad((x * 8).int(), (1, 1), value=-7)


def padded_again(x):
    return F.pad(F.pad(x, (1, 0), value=2.0) + 1, (0, 0, 2, 2))[2:-2]


def rolled(x):
    return torch.roll(x, (2, -9), (0, 2)) + x


def rolled_flat(x):
    return torch.roll(x, -3)


def rolled_rows(x):
    return torch.roll(x, 4, 1).softmax(1)


def odd_reshape(x):
    return (x.t().reshape(7, 12) + 1).reshape(3, 28).softmax(1)


def odd_reshape_map(x):
    return x.reshape(7, 12).t().reshape(14, 6) * 2 + x.reshape(14, 6)


def pixel_shuffle(x):
    return F.pixel_shuffle(x, 2) + 1


def views(x):
    return x[:, 1::2].flip(0).permute(2, 0, 1) + x[0, 0, 0]


def window(x):
    return x[:, 2:6] - x[:, 1:5]


def broadcast(x, b):
    return x + b[None, :, None]


def expanded(x):
    return x[:, :1].expand(5, 7, 6) * x


def tril(x):
    return torch.tril(x.exp())


def positions(x):
    return x * torch.arange(6, dtype=torch.float32) + torch.full((6,), 0.1)


def outer(x, y):
    return x[:, None] * y[None, :] + x[:, None]


def swish(x):
    return x * torch.sigmoid(x)


def activations(x):
    return (
        F.gelu(x),
        F.gelu(x, approximate="tanh"),
        F.elu(x),
        F.softplus(x),
        F.hardtanh(x),
        F.mish(x),
        F.selu(x),
    )


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def linear_3d(x, w, b):
    return F.linear(x, w, b).relu()


def product_of_transposed(a, b):
    return a.t() @ b.t()


def batched(a, b):
    return torch.bmm(a.transpose(1, 2), b.transpose(1, 2).exp()) * 0.5


def transformed_operand(a, b, s):
    return (a * s[:, None] + 1) @ torch.sigmoid(b)


def einsum_4d(a, b):
    return torch.einsum("bijl,lk->bijk", a, b)


def upper_triangle(a, b):
    return torch.triu(a @ b)


def product_and_activation(a, b):
    product = a @ b
    return product, product.tanh(), product.t()


def matrix_vector(a, v):
    return a @ v + 1


def attention_scores(q, k):
    return q @ k.transpose(-1, -2) / 8**0.5


def merged_heads(p, v):
    return torch.bmm(p, v).view(2, 3, 4, 5).permute(0, 2, 1, 3).reshape(2, 4, 15) + 1


def flipped_product(a, b):
    return (a @ b).flip(1).t().sigmoid()


def two_softmaxes(x):
    return x.softmax(1).softmax(0)


def distance_loss(x, y):
    return ((x - y) ** 2).sum(1).mean()


def linear_softmax(x, w):
    return F.linear(x, w).softmax(-1)


def norm_linear(x, w):
    return F.linear(x / x.sum(-1, keepdim=True), w)


def two_products(a, b):
    return a @ b @ b


def ordered(x):
    return x.sort(1)[0]


def running_sum(x):
    return x.cumsum(1)


def running_product(x):
    return x.cumprod(-1)


def running_sum_of_rows(x):
    return x.cumsum(0) * 2


def running_sum_middle(x):
    return (x.relu() + 1).cumsum(1)


def running_sum_backwards(x):
    return x.flip(1).cumsum(1).flip(1)


def running_sum_before(x):
    return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)


def running_sum_before_backwards(x):
    turned = x.flip(1).cumsum(1)[:, :-1]
    return F.pad(turned, (1, 0)).flip(1)


def running_product_before(x):
    return torch.cat((torch.ones_like(x[:, :1]), x.cumprod(1)[:, :-1]), 1)


def running_sum_without_itself(x):
    return x.cumsum(1) - x, x.exp()


def running_sum_masked(x, y):
    return (x * (y > 0)).cumsum(1)


def running_count(x):
    return (x > 0).cumsum(1)


def running_sum_transposed(x):
    return x.t().cumsum(0).t()


def running_sum_of_a_slice(x):
    return x[:, 1:].cumsum(1)


def running_sum_in_halves(x):
    return x.cumsum(1).view(x.shape[0], 2, -1).transpose(0, 1).contiguous()


def running_mean(x):
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)


def scan_of_softmax(x):
    return x.softmax(1).cumsum(1)


def last_of_a_scan(x):
    return x.cumsum(1)[:, -1]


def two_scans(x):
    return x.cumsum(1) + x.cumprod(1)


def unlike_outputs(x):
    return x * 2, x[:2] + 1


def rows_and_columns(x):
    return x.sum(0), x.sum(1)


def max_pool_line(x):
    return F.max_pool1d(x, 8, 1, padding=4, dilation=3)


def max_pool_plane(x):
    return F.max_pool2d(x, (4, 3), stride=(1, 2), padding=(1, 1))


def max_pool_ceil(x):
    return F.max_pool2d(x, 3, stride=2, padding=1, dilation=2, ceil_mode=True)


def max_pool_solid(x):
    return F.max_pool3d(x, 3, stride=2, padding=1, dilation=3)


def max_pool_places(x):
    return F.max_pool2d(x.round(), 3, stride=2, padding=1, return_indices=True)


def max_pool_place_in_solid(x):
    return F.max_pool3d(x.round(), (2, 3, 2), stride=1, return_indices=True)[1]


def avg_pool_line(x):
    return F.avg_pool1d(x, 8, 1, padding=4)


def avg_pool_plane(x):
    return F.avg_pool2d(x, 11)


def avg_pool_ceil(x):
    return F.avg_pool2d(x, (3, 4), stride=2, padding=1, ceil_mode=True)


def avg_pool_inside(x):
    return F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)


def avg_pool_divisor(x):
    return F.avg_pool2d(x, 3, stride=1, divisor_override=7)


def avg_pool_solid(x):
    return F.avg_pool3d(x, 3, stride=2, padding=1)


def pool_of_relu_and_more(x, y):
    return F.max_pool2d(torch.relu(x) * y, 3, stride=1, padding=1) * 2 + y.exp()


def pool_of_permuted(x):
    return F.avg_pool2d(x.permute(0, 3, 1, 2), 2)


def adaptive_pool(x):
    return F.adaptive_avg_pool2d(x, (3, 2))


def depthwise_line(x, w, b):
    return F.conv1d(x, w, b, padding=2, dilation=2, groups=x.shape[1])


def depthwise_plane(x, w):
    return F.conv2d(x, w, groups=x.shape[1])


def depthwise_strided(x, w, b):
    return F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=x.shape[1]).relu()


def depthwise_solid(x, w):
    return F.conv3d(x, w, stride=(1, 2, 1), padding=1, groups=x.shape[1])


def two_pools(x):
    return F.max_pool2d(x, 2) + F.avg_pool2d(x, 2)


def convolution(x, w):
    return F.conv2d(x, w)


def composed_activations(x):
    return (
        torch.tanh(F.softplus(x)) * x,
        x * torch.sigmoid(x),
        0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0)))),
        x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)),
        F.mish(x),
        F.softplus(x),
        F.softplus(x, beta=2.0, threshold=10.0),
        F.logsigmoid(x),
        F.elu(x),
        F.selu(x),
        F.hardswish(x),
        torch.sigmoid(x),
        x / 7.0,
        1.0 / x,
        x / (1.0 + x.abs()),
        torch.pow(x, 5),
        torch.sqrt(x),
        1.0 / torch.sqrt(x),
        2.5 / torch.sqrt(x),
    )


def quotient_rounded(x, y):
    return torch.floor(x / y), torch.round(x / 3.0)


def quotient_of_sign(x, y):
    return torch.where(x / y > 0, x, y)


def sigmoid_twice(x):
    return torch.sigmoid(x) * x + torch.sigmoid(x), torch.exp(x) * x, torch.exp(x) + 1.0
