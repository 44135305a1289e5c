// Attributes of nodes, from ONNX Runtime's form to AttributeProto.
#include <algorithm>

#include "graph.hpp"

namespace bpo {
namespace {

// The kinds of ReadOpAttr.
enum : int32_t {
  kInt = 1,
  kInts = 2,
  kFloat = 3,
  kFloats = 4,
  kString = 5,
  kStrings = 6,
  kGraph = 7,
  kTensor = 8,
};

// The numbers of AttributeProto.AttributeType, and of the fields that hold the values.
enum : int32_t {
  kProtoFloat = 1,
  kProtoInt = 2,
  kProtoString = 3,
  kProtoTensor = 4,
  kProtoGraph = 5,
  kProtoFloats = 6,
  kProtoInts = 7,
  kProtoStrings = 8,
};
enum : uint32_t { kName = 1, kF, kI, kS, kT, kG, kFloatList, kIntList, kStringList, kType = 20 };
constexpr uint32_t kAttributeOfNode = 5;

// Reads a list of elements or a text. The first call says how large it is, and fails for a size
// that is too small, which is no failure of ours.
template <typename T>
std::vector<T> read(const Ort& ort, const OrtOpAttr* attribute, int32_t kind) {
  size_t size = 0;
  OrtStatus* const too_small = ort.ReadOpAttr(attribute, kind, nullptr, 0, &size);
  if (too_small != nullptr) ort.ReleaseStatus(too_small);
  std::vector<T> values(size / sizeof(T));
  if (size > 0) {
    ort.check(ort.ReadOpAttr(attribute, kind, values.data(), size, &size), "ReadOpAttr");
  }
  return values;
}

// ONNX Runtime gives a list of texts as one, with a zero byte behind each.
void add_texts(const std::vector<char>& texts, Message& out) {
  for (auto begin = texts.begin(); begin != texts.end();) {
    const auto end = std::find(begin, texts.end(), '\0');
    out.add_bytes(kStringList, std::string_view(&*begin, static_cast<size_t>(end - begin)));
    begin = end == texts.end() ? end : end + 1;
  }
}

void add_tensor(const Ort& ort, const OrtOpAttr* attribute, Message& out) {
  OrtValue* value = nullptr;
  ort.check(ort.OpAttr_GetTensorAttributeAsOrtValue(attribute, &value),
            "OpAttr_GetTensorAttributeAsOrtValue");
  const std::unique_ptr<OrtValue, void (*)(OrtValue*)> owner(value, ort.ReleaseValue);
  const HostTensorView view = view_of(ort, value);
  size_t size = 0;
  ort.check(ort.GetTensorSizeInBytes(value, &size), "GetTensorSizeInBytes");
  out.add_bytes(
      kT, tensor_bytes(
              {"", view.element_type, view.dims, {static_cast<const char*>(view.data), size}}));
}

// Fills what is no list. Returns the type of the attribute, or 0 for another kind.
int32_t add_single(const Ort& ort, const OrtOpAttr* attribute, int32_t kind, Message& out) {
  switch (kind) {
    case kInt:
      out.add_integer(kI, read<int64_t>(ort, attribute, kind).at(0));
      return kProtoInt;
    case kFloat:
      out.add_float(kF, read<float>(ort, attribute, kind).at(0));
      return kProtoFloat;
    case kString: {
      const std::vector<char> text = read<char>(ort, attribute, kind);
      out.add_bytes(kS, {text.data(), text.size()});
      return kProtoString;
    }
    case kTensor:
      add_tensor(ort, attribute, out);
      return kProtoTensor;
    default:
      return 0;
  }
}

int32_t add_list(const Ort& ort, const OrtOpAttr* attribute, int32_t kind, Message& out) {
  switch (kind) {
    case kInts:
      for (const int64_t n : read<int64_t>(ort, attribute, kind)) out.add_integer(kIntList, n);
      return kProtoInts;
    case kFloats:
      for (const float x : read<float>(ort, attribute, kind)) out.add_float(kFloatList, x);
      return kProtoFloats;
    case kStrings:
      add_texts(read<char>(ort, attribute, kind), out);
      return kProtoStrings;
    default:
      return 0;
  }
}

}  // namespace

std::string attribute_field(const Ort& ort, const OrtOpAttr* attribute) {
  const char* name = nullptr;
  int32_t kind = 0;
  ort.check(ort.OpAttr_GetName(attribute, &name), "OpAttr_GetName");
  ort.check(ort.OpAttr_GetType(attribute, &kind), "OpAttr_GetType");
  if (kind == kGraph) return "";
  Message proto;
  proto.add_bytes(kName, name);
  int32_t type = add_single(ort, attribute, kind, proto);
  if (type == 0) type = add_list(ort, attribute, kind, proto);
  if (type == 0) {
    throw OrtError(BP_UNSUPPORTED, std::string("the attribute '") + name + "' is of kind " +
                                       std::to_string(kind) + ", which cannot be read");
  }
  proto.add_integer(kType, type);
  Message field;
  field.add_bytes(kAttributeOfNode, proto.bytes());
  return field.bytes();
}

std::string graph_field(const char* name, const std::string& graph) {
  Message proto;
  proto.add_bytes(kName, name);
  proto.add_bytes(kG, graph);
  proto.add_integer(kType, kProtoGraph);
  Message field;
  field.add_bytes(kAttributeOfNode, proto.bytes());
  return field.bytes();
}

}  // namespace bpo
