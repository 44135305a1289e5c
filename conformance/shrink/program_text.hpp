// The parts of a standalone program that are the same for every call.
#pragma once

namespace bp::conformance {

constexpr const char* kProgramHead = R"(
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backplane/host.h"
#include "backplane/ops.h"

/* A tensor of the call. Nothing may change the other bytes of its memory. */
struct operand {
  const char* name;
  uint64_t element_bits, memory_bytes;
  int shares;               /* The operand whose memory it uses: its own number, or a lower one. */
  const void* elements;     /* In row-major order, each in whole bytes; NULL if the call only writes
                               it. */
  const double *low, *high; /* The right interval of each float element; NaN: only NaN is right. */
  const uint64_t* right;    /* The right bits of each element of another type. */
  bp_tensor tensor;
  unsigned char *before, *after;
};

/* Other values that are right for single elements. */
struct also {
  int operand;
  uint64_t element;
  double value;
};

)";

constexpr const char* kProgramBody = R"(
static uint64_t count_of(const bp_tensor* tensor) {
  uint64_t count = 1;
  for (uint32_t axis = 0; axis < tensor->ndim; ++axis) count *= (uint64_t)tensor->shape[axis];
  return count;
}

static uint64_t bit_of(const struct operand* o, uint64_t number) {
  int64_t elements = 0;
  for (uint32_t axis = o->tensor.ndim; axis-- > 0;) {
    const uint64_t extent = (uint64_t)o->tensor.shape[axis];
    elements += (int64_t)(number % extent) * o->tensor.strides[axis];
    number /= extent;
  }
  return 8 * o->tensor.byte_offset + (uint64_t)(elements * (int64_t)o->element_bits);
}

/* Elements of fewer than 8 bits share bytes, from the low bits of each up. */
static uint64_t get_bits(const void* memory, uint64_t first, uint64_t count) {
  uint64_t bits = 0;
  for (uint64_t bit = first + count; bit-- > first;) {
    bits = bits << 1 | (((const unsigned char*)memory)[bit / 8] >> bit % 8 & 1u);
  }
  return bits;
}

static void put_bits(unsigned char* memory, uint64_t first, uint64_t count, uint64_t bits) {
  for (uint64_t bit = first; bit < first + count; ++bit, bits >>= 1) {
    const unsigned rest = memory[bit / 8] & ~(1u << bit % 8);
    memory[bit / 8] = (unsigned char)(rest | (unsigned)(bits & 1) << bit % 8);
  }
}

static double float_of(bp_dtype dtype, uint64_t bits) {
  if (dtype == BP_F64) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  if (dtype == BP_F16) {
    const int exponent = (int)(bits >> 10 & 31);
    const double part = (double)(bits & 1023);
    const double value = exponent == 31  ? (part != 0 ? NAN : INFINITY)
                         : exponent == 0 ? ldexp(part, -24)
                                         : ldexp(1024 + part, exponent - 25);
    return (bits >> 15) != 0 ? -value : value;
  }
  const uint32_t word = (uint32_t)(dtype == BP_BF16 ? bits << 16 : bits);
  float value;
  memcpy(&value, &word, sizeof(value));
  return (double)value;
}

static int is_right(int number, uint64_t element, uint64_t bits) {
  const struct operand* o = &operands[number];
  const double y = o->low == NULL ? (double)(int64_t)bits : float_of(o->tensor.dtype, bits);
  for (size_t i = 0; i < sizeof(alsos) / sizeof(alsos[0]); ++i) {
    if (alsos[i].operand != number || alsos[i].element != element) continue;
    if (y == alsos[i].value || (isnan(y) && isnan(alsos[i].value))) return 1;
  }
  if (o->low == NULL) return bits == o->right[element];
  const double low = o->low[element], high = o->high[element];
  if (isnan(low)) return isnan(y);
  if (!(low <= y && y <= high)) return 0;
  /* If both ends are zeros of one sign, a zero must have that sign. */
  const int has_sign = low == 0 && high == 0 && !signbit(low) == !signbit(high);
  return !has_sign || !signbit(y) == !signbit(low);
}

static int fail(const char* what, bp_status status) {
  fprintf(stderr, "%s: %s: %s\n", what, bp_status_name(status), bp_error_text());
  return 1;
}

static int prepare(const bp_target* target, int number) {
  struct operand* o = &operands[number];
  const struct operand* owner = &operands[o->shares];
  o->tensor.buffer = owner->tensor.buffer;
  if (o->shares != number) return 0;
  const bp_allocator_ops* memory = target->allocator;
  const bp_allocate_desc desc = {.struct_size = sizeof(desc),
                                 .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                 .size_bytes = o->memory_bytes};
  bp_status status = memory->allocate(memory->self, target->device, &desc, &o->tensor.buffer);
  if (status != BP_OK) return fail("allocate", status);
  o->before = malloc(o->memory_bytes);
  o->after = malloc(o->memory_bytes);
  if (o->before == NULL || o->after == NULL) abort();
  memset(o->before, 0xff, o->memory_bytes); /* NaN in every floating-point type. */
  for (uint64_t i = 0; o->elements != NULL && i < count_of(&o->tensor); ++i) {
    const uint64_t place = i * ((o->element_bits + 7) / 8 * 8);
    put_bits(o->before, bit_of(o, i), o->element_bits,
             get_bits(o->elements, place, o->element_bits));
  }
  const bp_buffer_ref whole = {o->tensor.buffer, 0, o->memory_bytes};
  status = memory->copy_from_host(memory->self, target->default_stream, &whole, o->before,
                                  BP_BORROW_DURING_CALL);
  return status == BP_OK ? 0 : fail("copy_from_host", status);
}

static int check_elements(int number) {
  struct operand* o = &operands[number];
  if (o->low == NULL && o->right == NULL) return 0;
  unsigned char* after = operands[o->shares].after;
  for (uint64_t i = 0; i < count_of(&o->tensor); ++i) {
    const uint64_t place = bit_of(o, i), bits = get_bits(after, place, o->element_bits);
    if (!is_right(number, i, bits)) {
      printf("%s: element %" PRIu64 " is 0x%" PRIx64, o->name, i, bits);
      if (o->low == NULL) printf(", not 0x%" PRIx64 "\n", o->right[i]);
      if (o->low != NULL) {
        printf(" = %.17g, not within [%.17g, %.17g]\n", float_of(o->tensor.dtype, bits),
               o->low[i], o->high[i]);
      }
      return 1;
    }
    put_bits(after, place, o->element_bits,
             get_bits(operands[o->shares].before, place, o->element_bits));
  }
  return 0;
}

static int check(const bp_target* target) {
  const bp_allocator_ops* memory = target->allocator;
  for (int i = 0; i < kOperandCount; ++i) {
    if (operands[i].shares != i) continue;
    const bp_buffer_ref whole = {operands[i].tensor.buffer, 0, operands[i].memory_bytes};
    const bp_status status = memory->copy_to_host(memory->self, target->default_stream,
                                                  operands[i].after, &whole, BP_BORROW_DURING_CALL,
                                                  UINT64_MAX);
    if (status != BP_OK) return fail("copy_to_host", status);
  }
  for (int i = 0; i < kOperandCount; ++i) {
    if (check_elements(i) != 0) return 1;
  }
  for (int i = 0; i < kOperandCount; ++i) {
    if (operands[i].shares != i) continue;
    for (uint64_t byte = 0; byte < operands[i].memory_bytes; ++byte) {
      if (operands[i].before[byte] == operands[i].after[byte]) continue;
      printf("%s: byte %" PRIu64 " of its memory changed, which is no element of an output\n",
             operands[i].name, byte);
      return 1;
    }
  }
  puts("every element is right");
  return 0;
}

static int launch(const bp_target* target);

int main(int argc, char** argv) {
  bp_option options[32] = {kOptions};
  uint64_t option_count = argc > 1 ? 0 : kOptionCount;
  for (int i = 2; i < argc && i < 34; ++i) {
    char* value = strchr(argv[i], '=');
    if (value == NULL) {
      return fprintf(stderr, "an option is '%s'; allowed: KEY=VALUE\n", argv[i]), 2;
    }
    *value = 0;
    options[option_count++] = (bp_option){argv[i], value + 1};
  }
  const bp_registry_desc desc = {
      .struct_size = sizeof(desc),
      .struct_type = BP_STRUCT_REGISTRY_DESC,
      .flags = BP_REGISTRY_FORBID_HOST_FALLBACK | BP_REGISTRY_FORBID_DECOMPOSITION |
               BP_REGISTRY_COMPILE_OPS};
  bp_registry* registry = NULL;
  const bp_plugin* plugin = NULL;
  bp_status status = bp_registry_create(&desc, &registry);
  if (status == BP_OK) {
    status = bp_registry_load(registry, argc > 1 ? argv[1] : kPlugin, option_count, options,
                              &plugin);
  }
  if (status != BP_OK) return fail("load", status), 2;
  if (bp_registry_target_count(registry) <= kDevice) return fputs("no such device\n", stderr), 2;
  const bp_target* target = bp_registry_target(registry, kDevice);
  int result = 0;
  for (int i = 0; i < kOperandCount && result == 0; ++i) result = prepare(target, i);
  if (result == 0) result = launch(target);
  for (int i = 0; i < kOperandCount; ++i) {
    if (operands[i].shares != i) continue;
    const bp_allocator_ops* memory = target->allocator;
    memory->deallocate(memory->self, operands[i].tensor.buffer, NULL);
    free(operands[i].before);
    free(operands[i].after);
  }
  bp_registry_destroy(registry);
  return result;
}

static int launch(const bp_target* target) {
)";

constexpr const char* kProgramEnd = R"(  if (status != BP_OK) return fail("launch", status);
  status = target->streams->synchronize(target->streams->self, target->default_stream,
                                        UINT64_C(60000000000));
)";

}  // namespace bp::conformance
