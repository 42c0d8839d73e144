/* Annotations for the analyzers of Windows, all empty here.
 *
 * __in and __out are defined in C, and in C++ only with TRACEWEIR_SAL1, because the C++ standard
 * library has parameters of these names. With TRACEWEIR_SAL1, a source must include the headers of
 * that library before windows.h.
 */
#ifndef TRACEWEIR_SAL_H
#define TRACEWEIR_SAL_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#define _Acquires_exclusive_lock_(lock)
#define _Acquires_lock_(lock)
#define _Acquires_shared_lock_(lock)
#define _Always_(annotations)
#define _Analysis_assume_nullterminated_(n)
#define _Analysis_mode_(mode)
#define _Analysis_noreturn_
#define _At_(target, annotations)
#define _At_buffer_(target, index, n, annotations)
#define _Called_from_function_class_(name)
#define _Check_return_
#define _COM_Outptr_
#define _COM_Outptr_opt_
#define _COM_Outptr_opt_result_maybenull_
#define _COM_Outptr_result_maybenull_
#define _Const_
#define _Const_opt_
#define _Deref_in_range_(low, high)
#define _Deref_inout_range_(n, used)
#define _Deref_opt_out_
#define _Deref_opt_out_opt_
#define _Deref_out_
#define _Deref_out_opt_
#define _Deref_out_range_(low, high)
#define _Deref_out_z_
#define _Deref_post_z_
#define _Deref_pre_z_
#define _Deref_ret_range_(n, used)
#define _Enum_is_bitflag_
#define _Field_range_(low, high)
#define _Field_size_(n)
#define _Field_size_bytes_(n)
#define _Field_size_bytes_full_(n)
#define _Field_size_bytes_full_opt_(n)
#define _Field_size_bytes_opt_(n)
#define _Field_size_bytes_part_(n, used)
#define _Field_size_bytes_part_opt_(n, used)
#define _Field_size_full_(n)
#define _Field_size_full_opt_(n)
#define _Field_size_opt_(n)
#define _Field_size_part_(n, used)
#define _Field_size_part_opt_(n, used)
#define _Field_z_
#define _Function_class_(name)
#define _Group_(annotations)
#define _Guarded_by_(lock)
#define _In_
#define _In_bytecount_(n)
#define _In_bytecount_c_(n)
#define _In_bytecount_x_(n)
#define _In_count_(n)
#define _In_count_c_(n)
#define _In_count_x_(n)
#define _In_opt_
#define _In_opt_bytecount_(n)
#define _In_opt_bytecount_c_(n)
#define _In_opt_bytecount_x_(n)
#define _In_opt_count_(n)
#define _In_opt_count_c_(n)
#define _In_opt_count_x_(n)
#define _In_opt_ptrdiff_count_(n)
#define _In_opt_z_
#define _In_opt_z_bytecount_(n)
#define _In_opt_z_bytecount_c_(n)
#define _In_opt_z_count_(n)
#define _In_opt_z_count_c_(n)
#define _In_ptrdiff_count_(n)
#define _In_range_(low, high)
#define _In_reads_(n)
#define _In_reads_bytes_(n)
#define _In_reads_bytes_opt_(n)
#define _In_reads_opt_(n)
#define _In_reads_opt_z_(n)
#define _In_reads_or_z_(n)
#define _In_reads_or_z_opt_(n)
#define _In_reads_to_ptr_(end)
#define _In_reads_to_ptr_opt_(n)
#define _In_reads_to_ptr_opt_z_(n)
#define _In_reads_to_ptr_z_(n)
#define _In_reads_z_(n)
#define _In_z_
#define _In_z_bytecount_(n)
#define _In_z_bytecount_c_(n)
#define _In_z_count_(n)
#define _In_z_count_c_(n)
#define _Inout_
#define _Inout_bytecap_(n)
#define _Inout_bytecap_c_(n)
#define _Inout_bytecap_x_(n)
#define _Inout_bytecount_(n)
#define _Inout_bytecount_c_(n)
#define _Inout_bytecount_x_(n)
#define _Inout_cap_(n)
#define _Inout_cap_c_(n)
#define _Inout_cap_x_(n)
#define _Inout_count_(n)
#define _Inout_count_c_(n)
#define _Inout_count_x_(n)
#define _Inout_opt_
#define _Inout_opt_bytecap_(n)
#define _Inout_opt_bytecap_c_(n)
#define _Inout_opt_bytecap_x_(n)
#define _Inout_opt_bytecount_(n)
#define _Inout_opt_bytecount_c_(n)
#define _Inout_opt_bytecount_x_(n)
#define _Inout_opt_cap_(n)
#define _Inout_opt_cap_c_(n)
#define _Inout_opt_cap_x_(n)
#define _Inout_opt_count_(n)
#define _Inout_opt_count_c_(n)
#define _Inout_opt_count_x_(n)
#define _Inout_opt_ptrdiff_count_(n)
#define _Inout_opt_z_
#define _Inout_opt_z_bytecap_(n)
#define _Inout_opt_z_bytecap_c_(n)
#define _Inout_opt_z_bytecap_x_(n)
#define _Inout_opt_z_bytecount_(n)
#define _Inout_opt_z_bytecount_c_(n)
#define _Inout_opt_z_cap_(n)
#define _Inout_opt_z_cap_c_(n)
#define _Inout_opt_z_cap_x_(n)
#define _Inout_opt_z_count_(n)
#define _Inout_opt_z_count_c_(n)
#define _Inout_ptrdiff_count_(n)
#define _Inout_updates_(n)
#define _Inout_updates_all_(n)
#define _Inout_updates_all_opt_(n)
#define _Inout_updates_bytes_(n)
#define _Inout_updates_bytes_all_(n)
#define _Inout_updates_bytes_all_opt_(n)
#define _Inout_updates_bytes_opt_(n)
#define _Inout_updates_bytes_to_(n, used)
#define _Inout_updates_bytes_to_opt_(n, used)
#define _Inout_updates_opt_(n)
#define _Inout_updates_opt_z_(n)
#define _Inout_updates_to_(n, used)
#define _Inout_updates_to_opt_(n, used)
#define _Inout_updates_z_(n)
#define _Inout_z_
#define _Inout_z_bytecap_(n)
#define _Inout_z_bytecap_c_(n)
#define _Inout_z_bytecap_x_(n)
#define _Inout_z_bytecount_(n)
#define _Inout_z_bytecount_c_(n)
#define _Inout_z_cap_(n)
#define _Inout_z_cap_c_(n)
#define _Inout_z_cap_x_(n)
#define _Inout_z_count_(n)
#define _Inout_z_count_c_(n)
#define _Interlocked_operand_
#define _IRQL_raises_(level)
#define _IRQL_requires_(level)
#define _IRQL_requires_max_(level)
#define _IRQL_requires_min_(level)
#define _IRQL_requires_same_
#define _IRQL_saves_
#define _IRQL_uses_cancel_
#define _Literal_
#define _Maybe_raises_SEH_exception_
#define _Maybenull_
#define _Maybevalid_
#define _Must_inspect_result_
#define _Notliteral_
#define _Notnull_
#define _Notvalid_
#define _Null_
#define _Null_terminated_
#define _NullNull_terminated_
#define _On_failure_(annotations)
#define _Out_
#define _Out_bytecap_(n)
#define _Out_bytecap_c_(n)
#define _Out_bytecap_post_bytecount_(n, used)
#define _Out_bytecap_x_(n)
#define _Out_bytecapcount_(n)
#define _Out_bytecapcount_x_(n)
#define _Out_cap_(n)
#define _Out_cap_c_(n)
#define _Out_cap_m_(n, used)
#define _Out_cap_post_count_(n, used)
#define _Out_cap_x_(n)
#define _Out_capcount_(n)
#define _Out_capcount_x_(n)
#define _Out_opt_
#define _Out_opt_bytecap_(n)
#define _Out_opt_bytecap_c_(n)
#define _Out_opt_bytecap_post_bytecount_(n, used)
#define _Out_opt_bytecap_x_(n)
#define _Out_opt_bytecapcount_(n)
#define _Out_opt_bytecapcount_x_(n)
#define _Out_opt_cap_(n)
#define _Out_opt_cap_c_(n)
#define _Out_opt_cap_m_(n, used)
#define _Out_opt_cap_post_count_(n, used)
#define _Out_opt_cap_x_(n)
#define _Out_opt_capcount_(n)
#define _Out_opt_capcount_x_(n)
#define _Out_opt_ptrdiff_cap_(n)
#define _Out_opt_z_bytecap_(n)
#define _Out_opt_z_bytecap_c_(n)
#define _Out_opt_z_bytecap_post_bytecount_(n, used)
#define _Out_opt_z_bytecap_x_(n)
#define _Out_opt_z_bytecapcount_(n)
#define _Out_opt_z_cap_(n)
#define _Out_opt_z_cap_c_(n)
#define _Out_opt_z_cap_m_(n, used)
#define _Out_opt_z_cap_post_count_(n, used)
#define _Out_opt_z_cap_x_(n)
#define _Out_opt_z_capcount_(n)
#define _Out_ptrdiff_cap_(n)
#define _Out_range_(low, high)
#define _Out_writes_(n)
#define _Out_writes_all_(n)
#define _Out_writes_all_opt_(n)
#define _Out_writes_bytes_(n)
#define _Out_writes_bytes_all_(n)
#define _Out_writes_bytes_all_opt_(n)
#define _Out_writes_bytes_opt_(n)
#define _Out_writes_bytes_to_(n, used)
#define _Out_writes_bytes_to_opt_(n, used)
#define _Out_writes_opt_(n)
#define _Out_writes_opt_z_(n)
#define _Out_writes_to_(n, used)
#define _Out_writes_to_opt_(n, used)
#define _Out_writes_to_ptr_(n)
#define _Out_writes_to_ptr_opt_(n)
#define _Out_writes_to_ptr_opt_z_(n)
#define _Out_writes_to_ptr_z_(n)
#define _Out_writes_z_(n)
#define _Out_z_bytecap_(n)
#define _Out_z_bytecap_c_(n)
#define _Out_z_bytecap_post_bytecount_(n, used)
#define _Out_z_bytecap_x_(n)
#define _Out_z_bytecapcount_(n)
#define _Out_z_cap_(n)
#define _Out_z_cap_c_(n)
#define _Out_z_cap_m_(n, used)
#define _Out_z_cap_post_count_(n, used)
#define _Out_z_cap_x_(n)
#define _Out_z_capcount_(n)
#define _Outptr_
#define _Outptr_opt_
#define _Outptr_opt_result_buffer_(n)
#define _Outptr_opt_result_buffer_all_(n)
#define _Outptr_opt_result_buffer_all_maybenull_(n)
#define _Outptr_opt_result_buffer_maybenull_(n)
#define _Outptr_opt_result_buffer_to_(n, used)
#define _Outptr_opt_result_buffer_to_maybenull_(n, used)
#define _Outptr_opt_result_bytebuffer_(n)
#define _Outptr_opt_result_bytebuffer_all_(n)
#define _Outptr_opt_result_bytebuffer_all_maybenull_(n)
#define _Outptr_opt_result_bytebuffer_maybenull_(n)
#define _Outptr_opt_result_bytebuffer_to_(n, used)
#define _Outptr_opt_result_bytebuffer_to_maybenull_(n, used)
#define _Outptr_opt_result_maybenull_
#define _Outptr_opt_result_maybenull_z_
#define _Outptr_opt_result_nullonfailure_
#define _Outptr_opt_result_z_
#define _Outptr_result_buffer_(n)
#define _Outptr_result_buffer_all_(n)
#define _Outptr_result_buffer_all_maybenull_(n)
#define _Outptr_result_buffer_maybenull_(n)
#define _Outptr_result_buffer_to_(n, used)
#define _Outptr_result_buffer_to_maybenull_(n, used)
#define _Outptr_result_bytebuffer_(n)
#define _Outptr_result_bytebuffer_all_(n)
#define _Outptr_result_bytebuffer_all_maybenull_(n)
#define _Outptr_result_bytebuffer_maybenull_(n)
#define _Outptr_result_bytebuffer_to_(n, used)
#define _Outptr_result_bytebuffer_to_maybenull_(n, used)
#define _Outptr_result_maybenull_
#define _Outptr_result_maybenull_z_
#define _Outptr_result_nullonfailure_
#define _Outptr_result_z_
#define _Outref_
#define _Outref_result_buffer_(n)
#define _Outref_result_buffer_all_(n)
#define _Outref_result_buffer_all_maybenull_(n)
#define _Outref_result_buffer_maybenull_(n)
#define _Outref_result_buffer_to_(n, used)
#define _Outref_result_buffer_to_maybenull_(n, used)
#define _Outref_result_bytebuffer_(n)
#define _Outref_result_bytebuffer_all_(n)
#define _Outref_result_bytebuffer_all_maybenull_(n)
#define _Outref_result_bytebuffer_maybenull_(n)
#define _Outref_result_bytebuffer_to_(n, used)
#define _Outref_result_bytebuffer_to_maybenull_(n, used)
#define _Outref_result_maybenull_
#define _Outref_result_nullonfailure_
#define _Points_to_data_
#define _Post_
#define _Post_bytecount_(n)
#define _Post_cap_(n)
#define _Post_count_(n)
#define _Post_equal_to_(value)
#define _Post_equals_last_error_
#define _Post_invalid_
#define _Post_maybenull_
#define _Post_notnull_
#define _Post_null_
#define _Post_ptr_invalid_
#define _Post_readable_byte_size_(n)
#define _Post_readable_size_(n)
#define _Post_satisfies_(condition)
#define _Post_valid_
#define _Post_writable_byte_size_(n)
#define _Post_writable_size_(n)
#define _Post_z_
#define _Pre_
#define _Pre_bytecap_(n)
#define _Pre_bytecount_(n)
#define _Pre_cap_(n)
#define _Pre_count_(n)
#define _Pre_equal_to_(n)
#define _Pre_maybenull_
#define _Pre_notnull_
#define _Pre_null_
#define _Pre_opt_valid_
#define _Pre_readable_byte_size_(n)
#define _Pre_readable_size_(n)
#define _Pre_satisfies_(condition)
#define _Pre_valid_
#define _Pre_writable_byte_size_(n)
#define _Pre_writable_size_(n)
#define _Pre_z_
#define _Prepost_valid_
#define _Prepost_z_
#define _Printf_format_string_
#define _Printf_format_string_params_(n)
#define _Raises_SEH_exception_
#define _Readable_bytes_(n)
#define _Readable_elements_(n)
#define _Releases_exclusive_lock_(lock)
#define _Releases_lock_(lock)
#define _Releases_shared_lock_(lock)
#define _Requires_lock_held_(lock)
#define _Requires_lock_not_held_(lock)
#define _Requires_no_locks_held_
#define _Reserved_
#define _Result_nullonfailure_
#define _Result_zeroonfailure_
#define _Ret_
#define _Ret_bytecap_(n)
#define _Ret_bytecap_c_(n)
#define _Ret_bytecap_x_(n)
#define _Ret_bytecount_(n)
#define _Ret_bytecount_c_(n)
#define _Ret_bytecount_x_(n)
#define _Ret_cap_(n)
#define _Ret_cap_c_(n)
#define _Ret_cap_x_(n)
#define _Ret_count_(n)
#define _Ret_count_c_(n)
#define _Ret_count_x_(n)
#define _Ret_maybenull_
#define _Ret_maybenull_z_
#define _Ret_notnull_
#define _Ret_null_
#define _Ret_opt_bytecap_(n)
#define _Ret_opt_bytecap_c_(n)
#define _Ret_opt_bytecap_x_(n)
#define _Ret_opt_bytecount_(n)
#define _Ret_opt_bytecount_c_(n)
#define _Ret_opt_bytecount_x_(n)
#define _Ret_opt_cap_(n)
#define _Ret_opt_cap_c_(n)
#define _Ret_opt_cap_x_(n)
#define _Ret_opt_count_(n)
#define _Ret_opt_count_c_(n)
#define _Ret_opt_count_x_(n)
#define _Ret_opt_z_
#define _Ret_opt_z_bytecap_(n)
#define _Ret_opt_z_bytecap_c_(n)
#define _Ret_opt_z_bytecap_x_(n)
#define _Ret_opt_z_bytecount_(n)
#define _Ret_opt_z_bytecount_c_(n)
#define _Ret_opt_z_bytecount_x_(n)
#define _Ret_opt_z_cap_(n)
#define _Ret_opt_z_cap_c_(n)
#define _Ret_opt_z_cap_x_(n)
#define _Ret_opt_z_count_(n)
#define _Ret_opt_z_count_c_(n)
#define _Ret_opt_z_count_x_(n)
#define _Ret_range_(low, high)
#define _Ret_valid_
#define _Ret_writes_(n)
#define _Ret_writes_bytes_(n)
#define _Ret_writes_bytes_maybenull_(n)
#define _Ret_writes_bytes_to_(n, used)
#define _Ret_writes_bytes_to_maybenull_(n, used)
#define _Ret_writes_maybenull_(n)
#define _Ret_writes_maybenull_z_(n)
#define _Ret_writes_to_(n, used)
#define _Ret_writes_to_maybenull_(n, used)
#define _Ret_writes_z_(n)
#define _Ret_z_
#define _Ret_z_bytecap_(n)
#define _Ret_z_bytecap_c_(n)
#define _Ret_z_bytecap_x_(n)
#define _Ret_z_bytecount_(n)
#define _Ret_z_bytecount_c_(n)
#define _Ret_z_bytecount_x_(n)
#define _Ret_z_cap_(n)
#define _Ret_z_cap_c_(n)
#define _Ret_z_cap_x_(n)
#define _Ret_z_count_(n)
#define _Ret_z_count_c_(n)
#define _Ret_z_count_x_(n)
#define _Return_type_success_(condition)
#define _Satisfies_(condition)
#define _Scanf_format_string_
#define _Scanf_format_string_params_(n)
#define _Scanf_s_format_string_
#define _Scanf_s_format_string_params_(n)
#define _Strict_type_match_
#define _Struct_size_bytes_(n)
#define _Success_(condition)
#define _Unchanged_(value)
#define _Use_decl_annotations_
#define _Valid_
#define _When_(condition, annotations)
#define _Writable_bytes_(n)
#define _Writable_elements_(n)
#define _Write_guarded_by_(lock)
#ifndef _Analysis_assume_
#define _Analysis_assume_(condition) ((void)0)
#endif
#ifndef __analysis_assume
#define __analysis_assume(condition) ((void)0)
#endif

#if !defined(__cplusplus) || defined(TRACEWEIR_SAL1)
#define __in
#define __out
#endif
#define __bcount(n)
#define __bcount_opt(n)
#define __checkReturn
#define __control_entrypoint(category)
#define __deref_in
#define __deref_in_opt
#define __deref_inout
#define __deref_inout_opt
#define __deref_opt_out
#define __deref_opt_out_bcount(n)
#define __deref_opt_out_ecount(n)
#define __deref_opt_out_opt
#define __deref_out
#define __deref_out_bcount(n)
#define __deref_out_bcount_opt(n)
#define __deref_out_ecount(n)
#define __deref_out_ecount_opt(n)
#define __deref_out_opt
#define __deref_out_z
#define __ecount(n)
#define __ecount_opt(n)
#define __field_bcount(n)
#define __field_bcount_part(n, used)
#define __field_ecount(n)
#define __field_ecount_part(n, used)
#define __format_string
#define __in_bcount(n)
#define __in_bcount_opt(n)
#define __in_ecount(n)
#define __in_ecount_opt(n)
#define __in_ecount_z(n)
#define __in_opt
#define __in_range(low, high)
#define __in_z
#define __in_z_opt
#define __inout
#define __inout_bcount(n)
#define __inout_bcount_full(n)
#define __inout_bcount_opt(n)
#define __inout_bcount_part(n, used)
#define __inout_ecount(n)
#define __inout_ecount_full(n)
#define __inout_ecount_opt(n)
#define __inout_ecount_part(n, used)
#define __inout_ecount_z(n)
#define __inout_opt
#define __inout_z
#define __inout_z_opt
#define __nullnullterminated
#define __nullterminated
#define __out_bcount(n)
#define __out_bcount_full(n)
#define __out_bcount_full_opt(n)
#define __out_bcount_opt(n)
#define __out_bcount_part(n, used)
#define __out_bcount_part_opt(n, used)
#define __out_bcount_z(n)
#define __out_ecount(n)
#define __out_ecount_full(n)
#define __out_ecount_full_opt(n)
#define __out_ecount_opt(n)
#define __out_ecount_part(n, used)
#define __out_ecount_part_opt(n, used)
#define __out_ecount_z(n)
#define __out_opt
#define __out_range(low, high)
#define __typefix(type)

#endif /* TRACEWEIR_SAL_H */
