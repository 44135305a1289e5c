# Writes the words of a SPIR-V file as the elements of a C array: cmake -D SPIRV=FILE -P embed.cmake
file(READ ${SPIRV} bytes HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1,\n" words "${bytes}")
file(WRITE ${SPIRV}.inc "${words}")
