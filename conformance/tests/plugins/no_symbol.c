/* A shared library that is no plugin: it exports another symbol. */
int bp_other_entry(void);
int bp_other_entry(void) { return 0; }
