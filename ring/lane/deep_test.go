package lane

import "os"

// deep reports whether the explorers have a night, as make model gives them.
func deep() bool { return os.Getenv("MODEL_DEEP") != "" }
