// Checks the processor against the one that the kernels were compiled for.
#pragma once

namespace bp::sim {

// Returns the name of a feature that the kernels use and this processor lacks, or NULL.
const char* missing_processor_feature();

}  // namespace bp::sim
