import torch
import torch.nn.functional as F

from pytorch.cases import backward, case, over, x


def add():
    shape = (1, 8, 1024, 64)

    def qkv(dtype):
        return tuple(x(shape, s, dtype) for s in range(3))

    def forward(causal):
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    case("attention f32 8x1024x64, causal", over(lambda: qkv("f32"), forward(True)))
    case("attention f32 8x1024x64", over(lambda: qkv("f32"), forward(False)))
    case("attention bf16 8x1024x64, causal", over(lambda: qkv("bf16"), forward(True)))
    case("attention backward f32 8x1024x64, causal", attention_backward)
    case("attention f32 8x2048x64, causal", lambda: windowed_attention(0))
    case("attention f32 8x2048x64, causal, window of 256", lambda: windowed_attention(256))
    more_attention()
    for name, dtype, extents in (("f32 8x12x512x64", "f32", (8, 12, 512, 64)),
                                 ("bf16 8x12x512x64", "bf16", (8, 12, 512, 64)),
                                 ("bf16 1x32x1x128", "bf16", (1, 32, 1, 128))):
        case(f"rope {name}", lambda extents=extents, dtype=dtype: rope(extents, dtype, 1))
    case("rope backward f32 8x12x512x64", lambda: rope((8, 12, 512, 64), "f32", -1))


def heads(name, q, k, dtype, is_causal=False):
    """Adds attention of queries of shape `q` over keys of shape `k`."""
    grouped = q[1] != k[1]
    case(f"attention {dtype} {name}",
         over(lambda: (x(q, 0, dtype), x(k, 1, dtype), x(k, 2, dtype)),
              lambda a, b, c: F.scaled_dot_product_attention(
                  a, b, c, is_causal=is_causal, enable_gqa=grouped)))


def more_attention():
    for dtype in ("f32", "bf16"):
        heads("32 over 8 heads x512x128, causal", (1, 32, 512, 128), (1, 8, 512, 128), dtype, True)
        heads("32x1x128 over 4096 keys of 8 heads", (1, 32, 1, 128), (1, 8, 4096, 128), dtype)
    heads("8x12x197x64", (8, 12, 197, 64), (8, 12, 197, 64), "f32")
    heads("32x1x128 over 4096 keys", (1, 32, 1, 128), (1, 32, 4096, 128), "f32")
    shape = (1, 8, 512, 64)
    case("attention f32 8x512x64, mask of bool",
         over(lambda: (x(shape), x(shape, 1), x(shape, 2), x((512, 512), 3) < 1),
              F.scaled_dot_product_attention))
    backward("attention backward bf16 8x1024x64, causal",
             lambda: tuple(x((1, 8, 1024, 64), s, "bf16") for s in range(3)),
             lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def windowed_attention(window):
    """Attention in which a query sees the `window` keys up to its own, or all of those for 0."""
    q, k, v = (x((1, 8, 2048, 64), s) for s in range(3))
    if window == 0:
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    i = torch.arange(2048)
    mask = (i[None, :] <= i[:, None]) & (i[None, :] > i[:, None] - window)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_backward():
    shape = (1, 8, 1024, 64)
    q, k, v = (x(shape, s).requires_grad_() for s in range(3))
    grad = x(shape, 3)
    with torch.enable_grad():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return lambda: torch.autograd.grad(y, (q, k, v), grad, retain_graph=True)[0]


def rope(shape, dtype, direction):
    """Returns the rotation, or for direction -1 its gradient, which turns back."""
    half = shape[-1] // 2
    a, cos, sin = x(shape, 0, dtype), x((shape[2], half), 1, dtype), x((shape[2], half), 2, dtype)
    sin = sin * direction

    def run():
        low, high = a[..., :half], a[..., half:]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    return run
