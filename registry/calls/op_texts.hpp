// The texts of a description and of its arguments, for all who copy, compare or write them.
//
// Header-only: the suite reads recordings by it.
#pragma once

#include <utility>

#include "backplane/operator.h"

namespace bp {

template <typename Struct>
using TextMember = std::pair<const char * Struct::*, const char*>;

inline constexpr TextMember<bp_op_desc> kOpTexts[] = {{&bp_op_desc::doc, "doc"},
                                                      {&bp_op_desc::numerics, "numerics"},
                                                      {&bp_op_desc::decomposition, "decomposition"},
                                                      {&bp_op_desc::condition, "condition"},
                                                      {&bp_op_desc::backward, "backward"}};

// The rules of an argument, which two descriptions of one name have in common.
inline constexpr TextMember<bp_op_argument> kArgumentRules[] = {
    {&bp_op_argument::dtype_rule, "dtype_rule"}, {&bp_op_argument::default_dtype, "default_dtype"},
    {&bp_op_argument::shape_rule, "shape_rule"}, {&bp_op_argument::rank_rule, "rank_rule"},
    {&bp_op_argument::count_rule, "count_rule"}, {&bp_op_argument::at_least, "at_least"},
    {&bp_op_argument::at_most, "at_most"},       {&bp_op_argument::below, "below"}};

// Its other texts, but for its name.
inline constexpr TextMember<bp_op_argument> kArgumentTexts[] = {
    {&bp_op_argument::default_text, "default_text"}, {&bp_op_argument::doc, "doc"}};

}  // namespace bp
