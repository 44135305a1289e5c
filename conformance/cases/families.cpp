#include "conformance/cases/families.hpp"

namespace bp::conformance {

void add_api_cases(std::vector<Case>& cases, const char* header,
                   std::initializer_list<ApiCase> rows) {
  for (const ApiCase& row : rows) {
    Case c;
    c.id = std::string(header) + "." + row.sentence;
    c.tags = row.tags;
    c.group = header;
    c.run = row.run;
    cases.push_back(std::move(c));
  }
}

}  // namespace bp::conformance
