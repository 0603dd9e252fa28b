"""The two halves of a layer, before and after attention, as functions whose weights are arguments.

All layers whose weights have the same forms share them, so each is compiled once for the whole model, for any number of
rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from graphpod_policy.model.architectures import HeadNorm, Norm
from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.opaque_call import OpaqueCall
from graphpod_runtime.base.shapes import Activation, ModelShape
from graphpod_runtime.compiled.cache import CompileCache, Compiled, CompiledCode
from graphpod_runtime.distributed.collectives import sum_of_ranks
from graphpod_runtime.kernels.activation import activated, gated
from graphpod_runtime.kernels.matrix_product import TRITON, add_product
from graphpod_runtime.models.attention.latent_projections import LatentBefore
from graphpod_runtime.models.mlp.experts import mixed
from graphpod_runtime.models.norm import NormTensors, normalised, normalised_heads
from graphpod_runtime.models.rope.rope_tables import apply_rope
from graphpod_runtime.models.weights.product import Form, Tensors, matmul

Function = Callable[..., Any]
Nested = Tensor | None | Tensors
"""An argument of a half."""


class Forms(NamedTuple):
    """Of the weights of a layer, and the experts that it has in place of an MLP."""

    qkv: Form = Form.Plain
    out: Form = Form.Plain
    gate_up: Form = Form.Plain
    down: Form = Form.Plain
    mixture: Mixture | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """Norm if any, projection, rotation: x [tokens, hidden] -> q [tokens, heads, d], k, v [tokens, kv_heads, d]."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    form: Form = Form.Plain
    norm: Norm = Norm.Rms
    qk_norm: HeadNorm | None = None
    clip: float | None = None
    ranks: int = 1
    """That have heads."""

    def __call__(
        self,
        x: Tensor,
        cosines: Tensor,
        sines: Tensor,
        norm: NormTensors | None,
        qkv: Tensors,
        bias: Tensor | None,
        norm_q: Tensor | None,
        norm_k: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.rotated(self.projected(x, norm, qkv, bias), cosines, sines, norm_q, norm_k)

    def projected(self, x: Tensor, norm: NormTensors | None, qkv: Tensors, bias: Tensor | None) -> Tensor:
        """[tokens, heads + 2 · kv_heads, d], not rotated."""
        read = x if norm is None else normalised(self.norm, x, norm, self.eps)
        heads = matmul(self.form, read, qkv, bias)
        # Their number is named, not left to be inferred: a compiler may know no division of symbols.
        return heads.view(x.shape[0], self.heads + 2 * self.kv_heads, self.head_dim)

    def rotated(
        self, heads: Tensor, cosines: Tensor, sines: Tensor, norm_q: Tensor | None, norm_k: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v out of what was projected: q and k normalised where there are weights for it, and rotated."""
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.clip is not None or self.qk_norm is not None:
            q, k = (apply_rope(self._settled(*part), cosines, sines) for part in ((q, norm_q), (k, norm_k)))
            return q, k, self._settled(v, None)
        rotated = apply_rope(heads[:, : self.heads + self.kv_heads], cosines, sines)
        return *rotated.split((self.heads, self.kv_heads), dim=1), v

    def _settled(self, heads: Tensor, norm: Tensor | None) -> Tensor:
        """`heads`, normalised where there are weights for it, and cut where there is a bound."""
        if self.qk_norm is not None and norm is not None:
            heads = normalised_heads(self.qk_norm, heads, norm, self.eps, self.ranks)
        return heads if self.clip is None else heads.clamp(-self.clip, self.clip)

    def rotated_by_kernel(
        self, heads: Tensor, cosines: Tensor, sines: Tensor, norm_q: Tensor | None, norm_k: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `rotated`, by the kernel, where there is one."""
        from graphpod_runtime.kernels.rotated_heads import rotate_into

        places = _places(self, heads)
        norms = None if norm_q is None or norm_k is None else (norm_q, norm_k)
        rotate_into(heads, cosines, sines, norms, self.eps, places)
        return places

    @property
    def has_rotation_kernel(self) -> bool:
        """Whether a kernel of ours does what `rotated` does, on a GPU."""
        known = self.qk_norm in (None, HeadNorm.Each) and self.clip is None
        return TRITON and self.head_dim.bit_count() == 1 and known


@dataclass(frozen=True, slots=True)
class After:
    """Output projection, norm, MLP: attended [tokens, heads · d] and x [tokens, hidden] -> [tokens, hidden].

    The results of attention and MLP are normalised before they are added where there are weights for it. `parallel`:
    the MLP reads x, not what attention made of it.
    """

    eps: float
    activation: Activation
    forms: Forms = Forms()  # noqa: RUF009 (a tuple of enums)
    kind: Norm = Norm.Rms
    parallel: bool = False
    gate: bool = True
    scale: float = 1.0
    """Of both results."""
    ranks: int = 1
    """That have parts of both products' inputs."""

    def __call__(
        self,
        attended: Tensor,
        x: Tensor,
        out: Tensors,
        out_bias: Tensor | None,
        norm_attended: NormTensors | None,
        norm: NormTensors | None,
        gate_up: Tensors,
        gate_up_bias: Tensor | None,
        down: Tensors,
        down_bias: Tensor | None,
        norm_result: NormTensors | None,
    ) -> Tensor:
        added = x + self._result(self._product(self.forms.out, attended, out, out_bias), norm_attended)
        read = x if self.parallel else added
        if self.forms.mixture is not None:
            return added + self._result(self._mixed(read, norm, gate_up, down), norm_result)
        wide = self.widened(read, norm, gate_up, gate_up_bias)
        return added + self._result(self._product(self.forms.down, wide, down, down_bias), norm_result)

    def with_experts(self, added: Tensor, norm: NormTensors | None, wide: Tensors, down: Tensors) -> Tensor:
        """What is left of a layer with experts once attention is added: [tokens, hidden]."""
        return added + self._mixed(added, norm, wide, down)

    def _mixed(self, x: Tensor, norm: NormTensors | None, wide: Tensors, down: Tensors) -> Tensor:
        assert self.forms.mixture is not None
        read = x if norm is None else normalised(self.kind, x, norm, self.eps)
        made = mixed(self.forms.mixture, read, wide, down, self.activation)
        return made if self.ranks == 1 else sum_of_ranks(made)

    def _product(self, form: Form, x: Tensor, weight: Tensors, bias: Tensor | None) -> Tensor:
        if self.ranks == 1:
            return matmul(form, x, weight, bias)
        total = sum_of_ranks(matmul(form, x, weight, None))
        return total if bias is None else total + bias

    def _result(self, x: Tensor, norm: NormTensors | None) -> Tensor:
        """What is added of the result `x` of a part."""
        made = x if norm is None else normalised(self.kind, x, norm, self.eps)
        return made if self.scale == 1.0 else made * self.scale

    def widened(self, x: Tensor, norm: NormTensors | None, gate_up: Tensors, bias: Tensor | None) -> Tensor:
        """[tokens, intermediate]. The widest tensors of a model are here, and size the graph pool: none is kept for
        longer than it is read, and the product takes no third one."""
        read = x if norm is None else normalised(self.kind, x, norm, self.eps)
        made = matmul(self.forms.gate_up, read, gate_up, bias)
        return gated(self.activation, made) if self.gate else activated(self.activation, made)

    @property
    def adds_in_place(self) -> bool:
        """Whether both results are added as their products give them, the first of them before the MLP reads."""
        plain = self.forms.out is self.forms.down is Form.Plain
        return plain and self.ranks == 1 and not self.parallel and self.scale == 1.0


class LayerFunctions:
    """Both, as written until `compile`."""

    def __init__(self, shape: ModelShape, forms: Forms) -> None:
        self.plain_before: Before | LatentBefore
        ranks = 1 if shape.part is None else shape.part.ranks
        if shape.latent is not None:
            self.plain_before = LatentBefore(shape.heads, shape.latent, shape.norm_eps, shape.norm)
        else:
            heads = (shape.heads, shape.kv_heads, shape.head_dim)
            self.plain_before = Before(*heads, shape.norm_eps, forms.qkv, shape.norm, shape.qk_norm, shape.clip, ranks)
        mlp = (shape.norm, shape.parallel, shape.gated, shape.residual_scale, ranks)
        self._after = After(shape.norm_eps, shape.activation, forms, *mlp)
        self.before: Function = self.plain_before
        self.after: Function = self._after
        self._halves: tuple[CompiledBefore, CompiledAfter] | None = None

    @property
    def compiled(self) -> bool:
        """Whether calls have compiled both."""
        return self._halves is not None and all(half.is_compiled for half in self._halves)

    def compile(self, cache: CompileCache | None) -> int:
        """Takes both from `cache` at their next calls; what it does not have is compiled then. None: plain again. How
        many it takes."""
        if cache is None:
            self.before, self.after, self._halves = self.plain_before, self._after, None
            return 0
        before, after = self._halves = CompiledBefore(self.plain_before, cache), CompiledAfter(self._after, cache)
        self.before = OpaqueCall(before, self.plain_before)
        self.after = OpaqueCall(after, self._after)
        return 2


class CompiledHalf:
    """One half. Its first call compiles it."""

    def __init__(self, half: Before | LatentBefore | After, cache: CompileCache) -> None:
        self._text, self._cache = repr(half), cache
        self._code: CompiledCode | None = None

    @property
    def is_compiled(self) -> bool:
        return self._code is not None

    def _coded(
        self, name: str, function: Function, arguments: tuple[Nested, ...], rows: tuple[int, ...]
    ) -> tuple[Tensor, ...]:
        flat = _flat(arguments)
        if self._code is None:
            self._code = self._cache.code(name, self._text, _taking_flat(function, arguments), flat, rows)
        return self._code(*flat)


class CompiledBefore(CompiledHalf):
    """Before, compiled with the places of its results as arguments, so that no copy follows. On a GPU it is compiled as
    far as the projection, and a kernel of ours does the rest.
    """

    def __init__(self, before: Before | LatentBefore, cache: CompileCache) -> None:
        super().__init__(before, cache)
        self._before = before

    def __call__(
        self,
        x: Tensor,
        cosines: Tensor,
        sines: Tensor,
        norm: NormTensors | None,
        qkv: Tensors,
        bias: Tensor | None,
        norm_q: Tensor | None,
        norm_k: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        before = self._before
        if x.is_cuda and isinstance(before, Before) and before.has_rotation_kernel:
            (heads,) = self._coded(Compiled.Before, before.projected, (x, norm, qkv, bias), (0,))
            return before.rotated_by_kernel(heads, cosines, sines, norm_q, norm_k)
        q, k, v = _places(before, x)
        arguments = (x, cosines, sines, norm, qkv, bias, norm_q, norm_k, q, k, v)
        last = len(_flat(arguments))
        self._coded(Compiled.Before, self._into, arguments, (0, 1, 2, last - 3, last - 2, last - 1))
        return q, k, v

    def _into(self, *arguments: Any) -> None:
        *given, q, k, v = arguments
        for place, result in zip((q, k, v), self._before(*given), strict=True):
            place.copy_(result)


class CompiledAfter(CompiledHalf):
    """After, compiled between its two residual sums where it can be: a matrix product adds to `x` in place and at no
    cost, where the compiler would copy `x` first. Then `x` is overwritten. With norms or biases of the products,
    weights of another form, or several ranks, the whole function is compiled.
    """

    def __init__(self, after: After, cache: CompileCache) -> None:
        super().__init__(after, cache)
        self._after = after

    def __call__(
        self,
        attended: Tensor,
        x: Tensor,
        out: Tensors,
        out_bias: Tensor | None,
        norm_attended: NormTensors | None,
        norm: NormTensors | None,
        gate_up: Tensors,
        gate_up_bias: Tensor | None,
        down: Tensors,
        down_bias: Tensor | None,
        norm_result: NormTensors | None,
    ) -> Tensor:
        after = self._after
        if not (after.adds_in_place and out_bias is norm_attended is down_bias is norm_result is None):
            whole = (attended, x, out, out_bias, norm_attended, norm)
            rest = (gate_up, gate_up_bias, down, down_bias, norm_result)
            (result,) = self._coded(Compiled.After, after, (*whole, *rest), (0, 1))
            return result
        add_product(x, attended, *out)  # type: ignore[arg-type]
        if after.forms.mixture is not None:
            # It is read and added to: a result of its own costs what a place in `x` would.
            (result,) = self._coded(Compiled.Mlp, after.with_experts, (x, norm, gate_up, down), (0,))
            return result
        (wide,) = self._coded(Compiled.Mlp, after.widened, (x, norm, gate_up, gate_up_bias), (0,))
        return add_product(x, wide, *down)  # type: ignore[arg-type]


def _places(before: Before | LatentBefore, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where q, k and v of as many rows go."""
    count, width = rows.shape[0], before.head_dim
    q = rows.new_empty(count, before.heads, width)
    return q, rows.new_empty(count, before.kv_heads, width), rows.new_empty(count, before.kv_heads, width)


def _flat(arguments: tuple[Nested, ...]) -> Tensors:
    """`arguments`, a weight taken apart into its tensors: compiled code takes no tuples."""
    return tuple(leaf for each in arguments for leaf in (each if isinstance(each, tuple) else (each,)))


def _taking_flat(function: Function, arguments: tuple[Nested, ...]) -> Function:
    """`function`, taking what `_flat` makes of arguments like these."""
    spans, at = [], 0
    for each in arguments:
        width = len(each) if isinstance(each, tuple) else None
        spans.append((at, width))
        at += 1 if width is None else width

    def taking(*flat: Tensor | None) -> Any:
        return function(*[flat[at] if width is None else flat[at : at + width] for at, width in spans])

    return taking
