package verbs

//go:generate go run golang.org/x/tools/cmd/stringer@v0.48.0 -linecomment -output=strings.go -type=Transport,PortState,LinkLayer,GIDType,AsyncEventType,WCOpcode,WCStatus,WROpcode,QPType,QPState
