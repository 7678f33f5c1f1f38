/* The digest of a compiled module's source; the build and the tests look for it in the module. pyjs_build.py makes
 * every module include this file.
 */
__attribute__((used)) static const char pyjs_source_hash[] = PYJS_SOURCE_HASH;
