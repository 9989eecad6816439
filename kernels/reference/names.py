"""The names of torch that a reference module may use: arithmetic on tensors, and nothing that reaches beyond it."""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ELEMENTWISE = """
abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil
clamp clamp_max clamp_min clip copysign cos cosh div divide eq erf erfc erfinv exp exp2 expm1 fix floor floor_divide
fmax fmin fmod frac ge greater greater_equal gt hypot isfinite isinf isnan ldexp le lerp less less_equal lgamma log
log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor lt maximum minimum mul multiply
nan_to_num ne neg negative not_equal positive pow reciprocal relu remainder round rsqrt rsub sgn sigmoid sign signbit
sin sinc sinh sqrt square sub subtract tan tanh true_divide trunc where xlogy
"""
_REDUCING = """
all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum diff dist kthvalue
logcumsumexp logsumexp max mean median min mode nanmean nansum norm prod quantile sort std std_mean sum topk unique
var var_mean softmax log_softmax
"""
_PRODUCTS = """
addbmm addmm addmv addr baddbmm bmm cross dot einsum inner kron matmul mm mv outer tensordot trace vdot
"""
_SHAPING = """
atleast_1d atleast_2d atleast_3d broadcast_to chunk column_stack diag diag_embed diagonal expand_as flatten flip
fliplr flipud gather hstack index_add index_select masked_fill masked_select moveaxis movedim narrow permute
repeat_interleave reshape roll rot90 scatter scatter_add select split squeeze stack swapaxes swapdims t take
take_along_dim tile transpose tril triu unbind unflatten unsqueeze vstack
"""

TORCH = _set(_ELEMENTWISE + _REDUCING + _PRODUCTS + _SHAPING) - {"expand_as", "xlogy"} | _set("""
arange as_tensor broadcast_tensors cartesian_prod cat cdist cumulative_trapezoid dstack empty empty_like eye full
full_like hann_window histc layer_norm linspace logspace meshgrid normal ones ones_like pairwise_distance prelu
rand rand_like randint randint_like randn randn_like randperm rms_norm scalar_tensor selu tensor tril_indices
triu_indices trapezoid zeros zeros_like celu cosine_similarity group_norm batch_norm instance_norm conv1d conv2d
conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d max_pool1d max_pool2d max_pool3d xlogy
bucketize searchsorted bincount heaviside logit digamma i0 isclose block_diag tensor_split float_power scatter_reduce
threshold hamming_window finfo iinfo
""")  # fmt: skip
"""Functions `torch.NAME`."""
TORCH_VALUES = _set("""
float32 float64 float16 bfloat16 float half double int8 int16 int32 int64 uint8 bool long int pi inf nan e
""")
"""`torch.NAME` that is no function."""
LINALG = _set("norm vector_norm matrix_norm vecdot cross diagonal matmul multi_dot inv det solve")
SPECIAL = _set("erf erfc erfinv expit exp2 expm1 entr gammaln i0 i1 log1p log_softmax softmax logit ndtr sinc xlogy")

NN = _set("""
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d
AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU ConstantPad1d
ConstantPad2d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss
CosineSimilarity CrossEntropyLoss Dropout Dropout1d Dropout2d ELU Embedding Flatten GELU GLU GRU GRUCell
GaussianNLLLoss GroupNorm HardShrink Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity
InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LSTM LSTMCell LayerNorm LeakyReLU Linear
LocalResponseNorm LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d Mish ModuleList
MultiheadAttention NLLLoss PReLU PairwiseDistance Parameter ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss
RMSNorm RNN RNNCell RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d SELU Sequential
SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink
Threshold TripletMarginLoss Unflatten Unfold Upsample ZeroPad1d ZeroPad2d Dropout3d AlphaDropout ChannelShuffle Fold
ConstantPad3d CircularPad2d ReplicationPad3d UpsamplingNearest2d LPPool2d MultiMarginLoss MultiLabelSoftMarginLoss
""") - {"HardShrink"}
"""Classes `nn.NAME` that a reference may make."""
FUNCTIONAL = _set("""
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d avg_pool1d
avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy binary_cross_entropy_with_logits celu conv1d conv2d
conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy dropout
elu embedding fold gaussian_nll_loss gelu glu group_norm hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss
huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu linear local_response_norm log_softmax
logsigmoid margin_ranking_loss max_pool1d max_pool2d max_pool3d mish mse_loss nll_loss normalize one_hot pad
pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 rms_norm rrelu
scaled_dot_product_attention selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink
softsign tanh tanhshrink threshold triplet_margin_loss unfold dropout2d lp_pool2d multi_margin_loss grid_sample
affine_grid
""")
INIT = _set("""
constant_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ trunc_normal_ uniform_ xavier_normal_
xavier_uniform_ zeros_ calculate_gain
""")
MATH = _set("""
acos asin atan atan2 ceil comb copysign cos cosh degrees dist erf erfc exp expm1 fabs factorial floor fmod gcd hypot
isclose isfinite isqrt lcm ldexp lgamma log log10 log1p log2 perm pow prod radians sin sinh sqrt tan tanh trunc
""") - {"factorial", "perm", "comb", "ldexp"}
MATH_VALUES = _set("pi e inf nan tau")

TENSOR_METHODS = _set(_ELEMENTWISE + _REDUCING + _PRODUCTS + _SHAPING) - _set("""
atleast_1d atleast_2d atleast_3d broadcast_tensors column_stack einsum hstack vstack tensordot logaddexp2 stack where
std_mean var_mean rsub kron cumulative_trapezoid
""") | _set("""
bfloat16 bool clone contiguous detach dim double expand expand_as fill_ float half int logit long masked_fill
new_empty new_full new_ones new_zeros nelement new_tensor numel repeat size stride sum_to_size to type_as unfold
view view_as where abs_ add_ clamp_ div_ exp_ mul_ neg_ normal_ relu_ sigmoid_ sub_ tanh_ uniform_ zero_ softmax
log_softmax index_copy index_fill masked_scatter copy_ masked_fill_ scatter_ index_add_ pow_ sqrt_ clamp_min_
""")  # fmt: skip
"""Methods of a tensor; none hands its memory out or takes a function."""
TENSOR_VALUES = _set("shape ndim dtype device T mT real imag values indices")
"""What is read of a tensor, and of the pairs that max, sort and their like give (of a tensor `values` and `indices` are
methods without arguments, which hand tensors out or raise)."""
LIST_METHODS = _set("append extend")
LIMITS = frozenset({"torch.finfo", "torch.iinfo"})
LIMIT_VALUES = _set("min max eps tiny")
"""What is read of `torch.finfo(...)` on the spot."""
UNFILLED = _set("empty empty_like new_empty")
"""What gives memory as it was."""
MODULE_VALUES = _set("""
weight bias running_mean running_var eps num_features in_features out_features normalized_shape in_channels out_channels
kernel_size num_groups
""")
"""Attributes of a submodule."""
BUILTINS = _set("abs bool enumerate float int len list max min range reversed round sum tuple zip")
ANNOTATIONS = _set("int float bool str list tuple dict object")

ANNOTATED = frozenset({"torch.Tensor", "torch.nn.Module"})
"""Types that an annotation or a list of base classes may name; they are never called and never read."""
TYPING = frozenset(f"typing.{name}" for name in ("List", "Optional", "Sequence", "Tuple", "Union"))
"""What may be imported from typing: for annotations alone."""

SPACES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "torch": (TORCH, TORCH_VALUES),
    "torch.nn": (NN, frozenset()),
    "torch.nn.functional": (FUNCTIONAL, frozenset()),
    "torch.nn.init": (INIT, frozenset()),
    "torch.linalg": (LINALG, frozenset()),
    "torch.special": (SPECIAL, frozenset()),
    "math": (MATH, MATH_VALUES),
}
"""Dotted name of a module -> what may be called in it, and what may be read."""
IMPORTS = frozenset({"torch", "torch.nn", "torch.nn.functional", "math"})
"""What may be imported, under any name."""
