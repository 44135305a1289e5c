// The beginning of every shader: extensions, memory by address, and the numbers of an invocation.
//
// Zeros keep their sign, and NaN and infinities are valid operands. No code relies on a fused
// multiply-add, and code that depends on the order of operations is `precise`.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require

// This sets SignedZeroInfNanPreserve for floats of 32 bits.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);

layout(constant_id = 0) const uint kLocalSize = 64;
layout(local_size_x_id = 0) in;

// `BP_RECORD { members } BP_RECORD_NAME;` makes `record`, the record of the arguments. It is read
// by its address, or is a uniform buffer if BOUND_RECORD is defined. The driver of a processor
// loads a value from a uniform buffer once for all invocations, and from an address once for each
// invocation.
#if defined(BOUND_RECORD)
#define BP_RECORD layout(set = 0, binding = 4, scalar) uniform Record
#define BP_RECORD_NAME record
#else
#define BP_RECORD layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Record
#define BP_RECORD_NAME
#define record Record(push.arguments)
#endif

// The push constants: the address of the record, and what a shader adds.
#if !defined(BP_PUSHED)
#define BP_PUSHED
#endif
layout(push_constant, scalar) uniform Push { uint64_t arguments; BP_PUSHED } push;

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes1 { uint8_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Bytes2 { uint16_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Bytes4 { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Bytes8 { uint64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Float32 { float value; };

// Returns the number of this workgroup. The host divides many workgroups over two axes.
uint group_number() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
