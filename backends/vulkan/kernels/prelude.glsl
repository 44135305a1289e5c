// What every shader needs: extensions, memory by address, where an invocation stands.
//
// Bits are kept: zeros keep their sign, and NaN and infinities are computed with. Nothing relies on
// a fused multiply-add, and code that counts on the order of operations is `precise`.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require

// SignedZeroInfNanPreserve for floats of 32 bits.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);

layout(constant_id = 0) const uint kLocalSize = 64;
layout(local_size_x_id = 0) in;

// What is pushed: where the record of the arguments lies, and what a shader adds to it.
#if !defined(BP_PUSHED)
#define BP_PUSHED
#endif
layout(push_constant, scalar) uniform Push { uint64_t record; BP_PUSHED } push;

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes1 { uint8_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Bytes2 { uint16_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Bytes4 { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Bytes8 { uint64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Float32 { float value; };

// The number of this workgroup: the host folds many of them into two axes.
uint group_number() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
