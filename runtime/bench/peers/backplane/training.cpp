#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

// Results of random ops are compared too: the means of so many numbers agree.
void add_random(Suite& s) {
  const Device cpu("cpu");
  s.add("uniform f32 4194304", 4.0 * kMany, kMany,
        [=] { return [=] { return uniform({kMany}, BP_F32, cpu, 1, 0); }; });
  s.add("normal f32 4194304", 4.0 * kMany, 4.0 * kMany,
        [=] { return [=] { return normal({kMany}, BP_F32, cpu, 1, 0); }; });
  s.add("normal bf16 1000003", 2.0 * kOdd, 4.0 * kOdd,
        [=] { return [=] { return normal({kOdd}, BP_BF16, cpu, 1, 0); }; });
  s.add("randint i64 4194304", 8.0 * kMany, kMany,
        [=] { return [=] { return randint({kMany}, BP_I64, cpu, 1, 0, 1000); }; });
  s.add("bernoulli f32 4194304", 8.0 * kMany, kMany,
        [] { return [p = full({kMany}, 0.3, BP_F32)] { return bernoulli(p, 1, 0); }; });
  s.add("dropout bf16 4194304", 4.0 * kMany, kMany,
        [] { return [x = input({kMany}, 0, BP_BF16)] { return dropout(x, 1, 0, 0.5); }; });
  s.add("randperm i64 1000003", 8.0 * kOdd, kOdd,
        [=] { return [=] { return randperm({kOdd}, BP_I64, cpu, 1, 0); }; });
  s.add("multinomial f32 64x32000, 256 draws", 4.0 * 64 * 32000 + 8.0 * 64 * 256, 64.0 * 32000, [] {
    return [w = positive({64, 32000})] { return multinomial(w, 1, 0, 256); };
  });
}

// The parameters of a model and what optimizers keep for them.
struct Parameters {
  Parameters(int64_t tensors, int64_t elements) {
    for (int64_t i = 0; i < tensors; ++i) {
      p.push_back(input({elements}, i));
      g.push_back(input({elements}, i + tensors));
      m.push_back(zeros({elements}, BP_F32));
      v.push_back(zeros({elements}, BP_F32));
    }
  }
  std::vector<Tensor> p, g, m, v;
  Tensor found = zeros({}, BP_F32);  // Whether a number was not finite.
};

using Step = void (*)(const Parameters& of, int64_t step);

void add_step(Suite& s, const std::string& name, double tensors_moved, double flops_each,
              int64_t tensors, int64_t elements, Step run) {
  const auto n = static_cast<double>(tensors * elements);
  s.add_update(name + " f32 " + std::to_string(tensors) + " of " + std::to_string(elements),
               4 * tensors_moved * n, flops_each * n, [=] {
                 return std::function<void()>(
                     [of = Parameters(tensors, elements), run, step = int64_t{0}]() mutable {
                       run(of, ++step);
                       of.p[0].device().synchronize();
                     });
               });
}

void add_optimizers(Suite& s) {
  const Step adamw = [](const Parameters& of, int64_t step) {
    adamw_step(of.p, of.g, of.m, of.v, 1e-3, step);
  };
  add_step(s, "adamw", 7, 14, 8, 524288, adamw);
  add_step(s, "adamw", 7, 14, 256, 4096, adamw);
  add_step(s, "adam", 7, 12, 8, 524288, [](const Parameters& of, int64_t step) {
    adam_step(of.p, of.g, of.m, of.v, 1e-3, step);
  });
  add_step(s, "sgd with momentum", 5, 4, 8, 524288,
           [](const Parameters& of, int64_t step) { sgd_step(of.p, of.g, of.m, 1e-3, step, 0.9); });
  add_step(s, "lion", 5, 8, 8, 524288, [](const Parameters& of, int64_t) {
    lion_step(of.p, of.g, of.m, 1e-4, 0.9, 0.99, 0.01);
  });
}

// Factors of -1 keep the numbers as large as they are.
void add_lists(Suite& s) {
  add_step(s, "foreach_scale", 2, 1, 8, 524288,
           [](const Parameters& of, int64_t) { foreach_scale(of.p, -1.0); });
  add_step(s, "foreach_scale", 2, 1, 256, 4096,
           [](const Parameters& of, int64_t) { foreach_scale(of.p, -1.0); });
  add_step(s, "scale_and_check_finite", 2, 1, 8, 524288,
           [](const Parameters& of, int64_t) { scale_and_check_finite(of.p, of.found, -1.0); });
  s.add("grad_norm f32 8 of 524288", 4.0 * kMany, 2.0 * kMany,
        [] { return [of = Parameters(8, 524288)] { return grad_norm(of.g); }; });
  s.add_update("clip_grad_norm f32 8 of 524288", 12.0 * kMany, 3.0 * kMany, [] {
    const Parameters of(8, 524288);
    for (size_t i = 0; i < of.p.size(); ++i) {
      of.p[i].set_requires_grad();
      of.p[i].set_grad(of.g[i]);
    }
    return std::function<void()>([of] {
      clip_grad_norm_on_device(of.p, 1.0);
      of.p[0].device().synchronize();
    });
  });
}

}  // namespace

void add_training(Suite& s) {
  s.add("dropout f32 4194304", 8.0 * kMany, kMany,
        [] { return [x = input({1 << 22})] { return dropout(x, 1, 0, 0.5); }; });
  add_random(s);
  add_optimizers(s);
  add_lists(s);
}

}  // namespace bp::bench
