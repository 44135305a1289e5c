#include "conformance/report/html.hpp"

#include <algorithm>

#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

// Each pair of text and ground has a contrast of at least 4.5 in both schemes.
constexpr const char* kColors = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#c4cbd3;--zebra:#f3f5f8;
--link:#0550ae;--good:#10602c;--goodbg:#d5f2dc;--part:#1b1f24;--partbg:#eaf6ed;--bad:#a40e26;
--badbg:#ffe0de;--other:#6f4400;--otherbg:#fdf0c8;--none:#57606a;--nonebg:#eceff2;--bar:#3f76c9}
@media(prefers-color-scheme:dark){:root{--bg:#0f141a;--fg:#e4e9ef;--soft:#a3adb8;--line:#3d4752;
--zebra:#171e26;--link:#7db7ff;--good:#7ee297;--goodbg:#123a20;--part:#dbe4dd;--partbg:#1c2b22;
--bad:#ffaaa3;--badbg:#551819;--other:#f0cb6d;--otherbg:#44340c;--none:#a3adb8;--nonebg:#20272f;
--bar:#6ea6f5}}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--soft:#333;--line:#888;--zebra:#f3f5f8;
--link:#000;--good:#10602c;--goodbg:#d5f2dc;--part:#000;--partbg:#eaf6ed;--bad:#a40e26;
--badbg:#ffe0de;--other:#6f4400;--otherbg:#fdf0c8;--none:#333;--nonebg:#eceff2;--bar:#3f76c9}})";

constexpr const char* kStyle = R"(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:86rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}
h3{font-size:1rem;margin:1.5rem 0 .3rem}p{margin:.4rem 0;max-width:52rem}.soft{color:var(--soft)}
a{color:var(--link)}a:focus-visible,summary:focus-visible{outline:3px solid var(--link);
outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--bg)}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;padding:0;margin:1rem 0}
.verdict{padding:.7rem 1rem;border-left:.4rem solid;font-size:1.15rem;font-weight:600}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:.7rem;padding:0;
list-style:none;margin:.6rem 0}
.cards li{border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem}
.cards b{display:block}
.good{color:var(--good)}.bad{color:var(--bad)}.other{color:var(--other)}.none{color:var(--none)}
.verdict.good,td.good,li.good,.key.good{background:var(--goodbg)}
td.part,.key.part{background:var(--partbg);color:var(--part)}
.verdict.bad,td.bad,li.bad,.key.bad{background:var(--badbg)}
.verdict.other,td.other,li.other,.key.other{background:var(--otherbg)}
td.none,li.none,.key.none{background:var(--nonebg)}
table{border-collapse:collapse;margin:.6rem 0;max-width:100%}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
td,th{padding:.2rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;overflow-wrap:normal}tbody th{font-weight:400}
th code{overflow-wrap:anywhere}td.n,th.n{text-align:right}
.heat td,.heat thead th{text-align:center;padding:.15rem .25rem;font-size:.8rem;min-width:2.6rem}
.heat td{border:1px solid var(--bg);font-variant-numeric:tabular-nums;overflow-wrap:normal}
.key{display:inline-block;padding:0 .5rem;margin:.1rem .3rem .1rem 0;border-radius:.2rem}
.keys{display:block}.keys span+span{margin-left:0}
code,pre{font-size:.875em}pre{white-space:pre-wrap;background:var(--zebra);padding:.5rem .8rem}
.track{display:inline-block;width:9rem;max-width:40vw;height:.7rem;background:var(--nonebg);
border:1px solid var(--line);margin-right:.5rem}
.fill{display:block;height:100%;background:var(--bar)}
.hist{display:inline-flex;align-items:flex-end;gap:1px;height:1.6rem;
border-bottom:1px solid var(--line)}
.hist span{width:.55rem;background:var(--bar)}
details{margin:.6rem 0}summary{cursor:pointer})";

// On a phone a row of a wide table becomes a block, and each of its cells names its column. Paper
// gets no links and no shadows, and keeps rows whole.
constexpr const char* kMedia = R"(
@media(max-width:75rem){.wide thead{display:none}.wide tr{display:flex;flex-wrap:wrap;gap:.15rem;
border-bottom:1px solid var(--line);padding:.35rem 0}
.wide tbody th,.wide td{display:block;border:0}.wide tbody th{flex-basis:100%;padding:.1rem 0;
font-weight:600}
.wide td[data-of]::before{content:attr(data-of) " ";color:inherit}.wide td.empty{display:none}
.wide td{min-width:0;padding:.1rem .4rem}.wide td.whole{flex-basis:100%}}
@media print{body{font-size:10pt}main{max-width:none;padding:0}nav,.skip,.screen{display:none}
h2{margin-top:1.2rem}h2,h3,caption{break-after:avoid}tr,li,details{break-inside:avoid}
.heat td,.heat th{font-size:6.5pt;padding:.05rem .1rem;min-width:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}})";

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string page_begin(const std::string& title) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         escaped(title) + "</title>\n<style>" + kColors + kStyle + kMedia +
         "\n</style></head><body>\n<a class=\"skip\" href=\"#main\">To the verdict</a>\n"
         "<main id=\"main\">\n";
}

std::string page_links(const std::vector<PagePart>& parts) {
  std::string text = "<nav aria-label=\"Parts of this page\"><ul>\n";
  for (const PagePart& part : parts) {
    text += std::string("<li><a href=\"#") + part.id + "\">" + part.title + "</a></li>\n";
  }
  return text + "</ul></nav>\n";
}

std::string page_end() { return "</main></body></html>\n"; }

std::string heading(const PagePart& part) {
  return std::string("<h2 id=\"") + part.id + "\">" + part.title + "</h2>\n";
}

std::string cell(const std::string& text, const char* css_class) {
  const std::string start =
      *css_class == '\0' ? "<td>" : "<td class=\"" + std::string(css_class) + "\">";
  return start + text + "</td>";
}

std::string labelled_cell(const std::string& label, const std::string& text,
                          const std::string& css_class) {
  return "<td class=\"" + css_class + "\" data-of=\"" + escaped(label) + "\">" + text + "</td>";
}

std::string bar(double share, const std::string& text) {
  const double percent = std::clamp(share == share ? share * 100 : 0.0, 0.0, 100.0);
  return "<span class=\"track\" aria-hidden=\"true\"><span class=\"fill\" style=\"width:" +
         fixed_text(percent, 0) + "%\"></span></span>" + text;
}

std::string histogram(const std::vector<size_t>& counts, const std::string& words) {
  const size_t most = counts.empty() ? 0 : *std::ranges::max_element(counts);
  std::string text = "<span class=\"hist\" role=\"img\" aria-label=\"" + escaped(words) + "\">";
  for (const size_t count : counts) {
    const size_t height = count == 0 ? 0 : 4 + count * 96 / most;
    text += "<span style=\"height:" + std::to_string(height) + "%\"></span>";
  }
  return text + "</span>";
}

}  // namespace bp::conformance
