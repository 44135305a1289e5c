// A locale in which 1.5 is written 1,5, for tests. It is made with localedef where the machine has
// none.
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace bp {

// The program has the locale as long as the object lives, if a locale could be had.
class CommaLocale {
 public:
  CommaLocale() : before_(setlocale(LC_ALL, nullptr)) {
    if (set()) return;
    std::string folder = (std::filesystem::temp_directory_path() / "bp_locale_XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    const std::string command =
        "localedef -i de_DE -f UTF-8 '" + folder + "/" + kName + "' >/dev/null 2>&1";
    // localedef exits with 1 after mere warnings, so only the use of the locale tells.
    static_cast<void>(!std::system(command.c_str()));
    if (const char* path = getenv("LOCPATH"); path != nullptr) path_before_ = path;
    setenv("LOCPATH", folder.c_str(), 1);
    set();
  }
  ~CommaLocale() {
    setlocale(LC_ALL, before_.c_str());
    if (folder_.empty()) return;
    if (path_before_) {
      setenv("LOCPATH", path_before_->c_str(), 1);
    } else {
      unsetenv("LOCPATH");
    }
    std::filesystem::remove_all(folder_);
  }
  CommaLocale(const CommaLocale&) = delete;

  bool is_set() const { return is_set_; }

  // A test that is skipped for want of the locale gives this reason.
  static constexpr const char* kNone =
      "this machine has no locale de_DE.UTF-8, and localedef cannot make one";

 private:
  static constexpr const char* kName = "de_DE.UTF-8";

  bool set() {
    is_set_ = setlocale(LC_ALL, kName) != nullptr && localeconv()->decimal_point[0] == ',';
    return is_set_;
  }

  std::string before_, folder_;
  std::optional<std::string> path_before_;
  bool is_set_ = false;
};

}  // namespace bp
