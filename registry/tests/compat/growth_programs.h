/* The part of growth.c that makes a program of each call, for the compiler of the backend. growth.c
 * includes it once. */
#ifndef GROWTH_PROGRAMS_H_
#define GROWTH_PROGRAMS_H_

/* The three tensors that a call may have: x, y, and an optional one that came later. */
typedef struct parts {
  bp_program_value values[3];
  uint32_t names[3];
  bp_program_node node;
  bp_program program;
} parts;

static void describe_value(bp_program_value* value, const bp_tensor* t, bp_value_role role) {
  *value = (bp_program_value){.struct_size = sizeof(*value),
                              .struct_type = BP_STRUCT_PROGRAM_VALUE,
                              .shape = t->shape,
                              .strides = t->strides,
                              .dtype = t->dtype,
                              .ndim = t->ndim,
                              .role = role};
}

/* Fills the program of one call. `later` is the last tensor of its frame, if the op has one that
 * came later. */
static void make_program(parts* p, uint32_t op, const void* args, const bp_tensor* x,
                         const bp_tensor* y, const bp_tensor* later, uint64_t tensor_count) {
  uint64_t i;
  memset(p, 0, sizeof(*p));
  describe_value(p->values, x, BP_VALUE_INPUT);
  describe_value(p->values + 1, y, BP_VALUE_OUTPUT);
  if (later != NULL) describe_value(p->values + 2, later, BP_VALUE_INPUT);
  for (i = 0; i < 3; ++i) p->names[i] = i < 2 ? (uint32_t)i : BP_NO_VALUE;
  if (later != NULL) p->names[2] = 2;
  p->node = (bp_program_node){.struct_size = sizeof(p->node),
                              .struct_type = BP_STRUCT_PROGRAM_NODE,
                              .args = args,
                              .values = p->names,
                              .value_count = tensor_count,
                              .op = op};
  p->program = (bp_program){.struct_size = sizeof(p->program),
                            .struct_type = BP_STRUCT_PROGRAM,
                            .values = p->values,
                            .value_count = later != NULL ? 3 : 2,
                            .value_stride_bytes = sizeof(p->values[0]),
                            .nodes = &p->node,
                            .node_count = 1,
                            .node_stride_bytes = sizeof(p->node),
                            .extent_stride_bytes = sizeof(bp_program_extent)};
}

/* Launches an executable once, and prints what ran. */
static void run_executable(bp_executable* executable, const bp_tensor* tensors, uint64_t count) {
  const bp_compiler_ops* c = target->compiler;
  const bp_program_args args = {
      .struct_size = sizeof(args), .tensors = tensors, .tensor_count = count};
  const bp_launch launch = {.device = target->device, .stream = target->default_stream};
  const bp_kernel* kernel = NULL;
  expect_ok(c->executable_kernel(c->self, executable, &kernel), "executable_kernel");
  ran[0] = 0;
  if (kernel->launch(kernel, &launch, &args) == BP_OK) {
    printf("served by%s\n", ran);
  } else {
    printf("FAILED: the launch of an executable: ");
    print_error();
  }
  expect_ok(c->release(c->self, executable), "release");
}

/* Prints the reason of query(), and checks that compile() refuses in the same words. */
static void print_refusal(const bp_compile_desc* desc, const char* reason) {
  const bp_compiler_ops* c = target->compiler;
  bp_executable* executable = NULL;
  const bp_status status = c->compile(c->self, target->device, desc, &executable);
  if (status == BP_UNSUPPORTED && strstr(bp_error_text(), reason) != NULL) {
    printf("refused: %s\n", reason);
  } else {
    printf("FAILED: query says '%s', and compile returned %d: ", reason, (int)status);
    print_error();
  }
}

/* Makes `t` a view of a whole value, as the tensors of a program are. */
static void make_view(bp_tensor* t) {
  t->buffer = NULL;
  t->byte_offset = 0;
}

/* Compiles and runs the call as a program. The frame points to x, y and `later`, which are views
 * meanwhile. */
static void run_program(const char* name, uint32_t op, const void* args, bp_tensor* x, bp_tensor* y,
                        bp_tensor* later) {
  const bp_compiler_ops* c = target->compiler;
  const bp_tensor tensors[3] = {*x, later != NULL ? *later : *y, *y};
  uint64_t partition_count = 0;
  uint32_t partition = 0;
  bp_reason reason = NULL;
  bp_executable* executable = NULL;
  parts p;
  make_view(x);
  make_view(y);
  if (later != NULL) make_view(later);
  make_program(&p, op, args, x, y, later, later != NULL ? 3 : 2);
  const bp_compile_desc desc = {.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_COMPILE_DESC,
                                .format = "backplane.graph",
                                .data = &p.program};
  printf("%s program: ", name);
  if (c->query(c->self, target->device, &desc, 1, &partition, &reason, &partition_count) != BP_OK) {
    printf("FAILED: query: ");
    print_error();
  } else if (reason != NULL) {
    print_refusal(&desc, reason);
  } else if (c->compile(c->self, target->device, &desc, &executable) != BP_OK) {
    printf("FAILED: compile: ");
    print_error();
  } else {
    run_executable(executable, tensors, later != NULL ? 3 : 2);
  }
  *x = tensors[0];
  *y = tensors[2];
  if (later != NULL) *later = tensors[1];
}

#endif /* GROWTH_PROGRAMS_H_ */
