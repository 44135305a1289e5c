// Signatures of packages, by ssh-keygen: FILE.sig lies beside FILE.
#pragma once

#include <string>

#include "conformance/report/package.hpp"

namespace bp::conformance {

// Signs a file with an SSH key, and returns the path of the signature. Throws UsageError with the
// words of ssh-keygen.
std::string sign_file(const std::string& file, const std::string& key);

// Checks FILE.sig. With a list of allowed signers (see ssh-keygen(1), ALLOWED SIGNERS), the key
// must be that of `signer`; without one, any key is right, and the check names it.
Check check_signature(const std::string& file, const std::string& allowed_signers,
                      const std::string& signer);

}  // namespace bp::conformance
