# Reads and writes records: each line but the first begins with a file and the hash that it had when it was tried.
# shellcheck shell=bash

# What was noted of the file, unless it is another one now.
noted() { # record, file
  awk -F '\t' -v file="$2" -v hash="$(git hash-object "$2")" '$1 == file && $2 == hash' "$1"
}

# Puts lines in the place of those of the file, and takes away those of files that are gone.
replace() { # record, file; the lines are read
  {
    head -n 1 "$1"
    {
      tail -n +2 "$1" | while IFS=$'\t' read -r file rest; do
        if [ -e "$file" ] && [ "$file" != "$2" ]; then printf '%s\t%s\n' "$file" "$rest"; fi
      done
      cat
    } | sort
  } >"$1.new"
  mv "$1.new" "$1"
}
