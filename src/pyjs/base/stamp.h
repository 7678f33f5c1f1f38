/* The digest of its source in every compiled module, where the build and the tests look for it (pyjs_build.py, which
 * has every module include this file).
 */
__attribute__((used)) static const char pyjs_source_hash[] = PYJS_SOURCE_HASH;
