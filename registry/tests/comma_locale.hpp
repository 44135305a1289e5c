// A locale in which 1.5 is written 1,5, for tests. It is made with localedef where the machine has
// none.
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
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
    // localedef warns with a code of its own, and the locale is of use nevertheless.
    static_cast<void>(!std::system(command.c_str()));
    setenv("LOCPATH", folder.c_str(), 1);
    set();
  }
  ~CommaLocale() {
    setlocale(LC_ALL, before_.c_str());
    if (folder_.empty()) return;
    unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }
  CommaLocale(const CommaLocale&) = delete;

  bool is_set() const { return is_set_; }

  // Why a test is skipped.
  static constexpr const char* kNone = "neither de_DE.UTF-8 nor what localedef makes it of is here";

 private:
  static constexpr const char* kName = "de_DE.UTF-8";

  bool set() {
    is_set_ = setlocale(LC_ALL, kName) != nullptr && localeconv()->decimal_point[0] == ',';
    return is_set_;
  }

  std::string before_, folder_;
  bool is_set_ = false;
};

}  // namespace bp
