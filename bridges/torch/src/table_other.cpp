// Rows of operators that do not work element by element.
#include "table.h"

namespace bpt {
namespace {

constexpr char kReduced[] = "x=self axes=dim keepdims=keepdim";

constexpr Row kRows[] = {
    // Reductions.
    {"sum sum.dim_IntList", "sum", kReduced, kDtype},
    {"mean mean.dim", "mean", kReduced, kDtype},
    {"prod prod.dim_int", "prod", kReduced, kDtype},
    {"amax", "amax", kReduced, 0},
    {"amin", "amin", kReduced, 0},
    {"max", "amax", "x=self axes=dim", 0},
    {"min", "amin", "x=self axes=dim", 0},
    {"any any.dim any.dims", "any", kReduced, kKeepsByte},
    {"all all.dim all.dims", "all", kReduced, kKeepsByte},
    {"count_nonzero.dim_IntList", "count_nonzero", "x=self axes=dim", 0},
    {"logsumexp", "logsumexp", kReduced, kFloat},
    {"linalg_vector_norm", "norm", "x=self p=ord axes=dim keepdims=keepdim", kDtype},
    {"argmax", "argmax", "x=self axis=dim keepdims=keepdim", 0},
    {"argmin", "argmin", "x=self axis=dim keepdims=keepdim", 0},
    {"cumsum", "cumsum", "x=self axis=dim", kDtype},
    {"cumprod", "cumprod", "x=self axis=dim", kDtype},
    {"logcumsumexp", "logcumsumexp", "x=self axis=dim", 0},

    // Along an axis.
    {"_softmax", "softmax", "x=self axis=dim ?half_to_float=0", 0},
    {"_log_softmax", "log_softmax", "x=self axis=dim ?half_to_float=0", 0},
    {"_softmax_backward_data", "softmax_backward", "grad_y=grad_output y=output axis=dim", 0},
    {"_log_softmax_backward_data", "log_softmax_backward", "grad_y=grad_output y=output axis=dim",
     0},
    {"topk", "topk", "x=self k=k axis=dim is_largest=largest +indices", 0},
    {"sort.stable", "sort", "x=self axis=dim is_descending=descending +indices", 0},
    {"tril", "tril", "x=self diagonal=diagonal", 0},
    {"triu", "triu", "x=self diagonal=diagonal", 0},

    // Products.
    {"mm", "matmul", "a=self b=mat2", 0},
    {"bmm", "matmul", "a=self b=mat2", 0},

    // By indices.
    {"index_select", "index_select", "x=self indices=index axis=dim", 0},
    {"embedding", "embedding", "weight=weight indices=indices", 0},
    {"embedding_dense_backward", "embedding_backward",
     "grad_y=grad_output indices=indices num_embeddings=num_weights ?padding_idx=-1 "
     "?scale_grad_by_freq=0",
     0},

    // Losses.
    {"mse_loss", "mse_loss", "x=self target=target reduction=reduction", kElementwise},
    {"smooth_l1_loss", "smooth_l1_loss", "x=self target=target reduction=reduction beta=beta",
     kElementwise},
    {"huber_loss", "huber_loss", "x=self target=target reduction=reduction delta=delta",
     kElementwise},
};

}  // namespace

std::span<const Row> other_rows() { return kRows; }

}  // namespace bpt
