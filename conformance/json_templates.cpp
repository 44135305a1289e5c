#include "conformance/json_templates.hpp"

template class nlohmann::basic_json<>;
