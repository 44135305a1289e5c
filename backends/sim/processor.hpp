// The processor that the kernels were compiled for.
#pragma once

namespace bp::sim {

// What the kernels use and this processor lacks, or NULL.
const char* missing_processor_feature();

}  // namespace bp::sim
