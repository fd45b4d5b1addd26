// Command verify checks an export with golang.org/x/mod's note and tlog packages and uses nothing of TerraFlow.
//
// A line asks: the export's folder, a folder of tlog-proofs or nothing, and the log's verifier key, between tabs. A line
// answers: "accepted", or what is wrong.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if err := verify(words[0], words[1], words[2]); err != nil {
			fmt.Println("refused:", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("accepted")
		}
	}
}

func verify(folder, proofs, vkey string) error {
	key, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(folder, "checkpoint"))
	if err != nil {
		return err
	}
	latest, err := openCheckpoint(raw, key)
	if err != nil {
		return err
	}
	reader := tlog.TileHashReader(latest, &tiles{folder: folder, size: latest.N})
	for index := int64(0); index < latest.N; index += 256 {
		if err := verifyBundle(folder, index, latest, reader); err != nil {
			return err
		}
	}
	if err := verifyHistory(folder, key, latest, reader); err != nil {
		return err
	}
	if proofs == "" {
		return nil
	}
	return verifyProofs(folder, proofs, key)
}

// openCheckpoint opens a signed note and reads its three lines.
func openCheckpoint(raw []byte, key note.Verifier) (tlog.Tree, error) {
	opened, err := note.Open(raw, note.VerifierList(key))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != key.Name() || lines[3] != "" {
		return tlog.Tree{}, errors.New("not a checkpoint of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: root}, err
}

// verifyBundle proves every record of the bundle that begins at an index.
func verifyBundle(folder string, first int64, latest tlog.Tree, reader tlog.HashReader) error {
	entries, err := readBundle(folder, first/256, latest.N)
	if err != nil {
		return err
	}
	for at, entry := range entries {
		proof, err := tlog.ProveRecord(latest.N, first+int64(at), reader)
		if err != nil {
			return err
		}
		err = tlog.CheckRecord(proof, latest.N, latest.Hash, first+int64(at), tlog.RecordHash(entry))
		if err != nil {
			return fmt.Errorf("record %d: %w", first+int64(at), err)
		}
	}
	return nil
}

func readBundle(folder string, index, size int64) ([][]byte, error) {
	raw, err := os.ReadFile(filepath.Join(folder, "tile", "entries", tail(index, size)))
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	for len(raw) > 0 {
		if len(raw) < 2 || len(raw) < 2+int(binary.BigEndian.Uint16(raw)) {
			return nil, errors.New("a bundle is cut short")
		}
		end := 2 + int(binary.BigEndian.Uint16(raw))
		entries = append(entries, raw[2:end])
		raw = raw[end:]
	}
	if want := min(size-index*256, 256); int64(len(entries)) != want {
		return nil, errors.New("a bundle holds another number of records")
	}
	return entries, nil
}

// verifyHistory proves that every published checkpoint is continued by the latest.
func verifyHistory(folder string, key note.Verifier, latest tlog.Tree, reader tlog.HashReader) error {
	raw, err := os.ReadFile(filepath.Join(folder, "checkpoints.jsonl"))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		var published struct{ Checkpoint string }
		if err := json.Unmarshal([]byte(line), &published); err != nil {
			return err
		}
		earlier, err := openCheckpoint([]byte(published.Checkpoint), key)
		if err != nil {
			return err
		}
		proof, err := tlog.ProveTree(latest.N, earlier.N, reader)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(proof, latest.N, latest.Hash, earlier.N, earlier.Hash); err != nil {
			return fmt.Errorf("checkpoint of %d: %w", earlier.N, err)
		}
	}
	return nil
}

// verifyProofs checks the tlog-proofs that TerraFlow made, each with the checkpoint inside it.
func verifyProofs(folder, proofs string, key note.Verifier) error {
	files, err := filepath.Glob(filepath.Join(proofs, "*.tlog-proof"))
	if err != nil || len(files) == 0 {
		return errors.New("there are no proofs")
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := verifyProof(folder, string(raw), key); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func verifyProof(folder, text string, key note.Verifier) error {
	at := strings.Index(text, "\n\n")
	if at < 0 {
		return errors.New("not a proof")
	}
	lines := strings.Split(text[:at], "\n")
	if len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return errors.New("not a proof")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	tree, err := openCheckpoint([]byte(text[at+2:]), key)
	if err != nil {
		return err
	}
	var path tlog.RecordProof
	for _, line := range lines[2:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return err
		}
		path = append(path, hash)
	}
	entries, err := readBundle(folder, index/256, tree.N)
	if err != nil {
		return err
	}
	return tlog.CheckRecord(path, tree.N, tree.Hash, index, tlog.RecordHash(entries[index%256]))
}

// tiles reads the export's tiles for tlog, which names them with their height.
type tiles struct {
	folder string
	size   int64
}

func (t *tiles) Height() int { return 8 }

func (t *tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		count := t.size >> (8 * uint(tile.L))
		raw, err := os.ReadFile(filepath.Join(t.folder, "tile", strconv.Itoa(tile.L), tail(tile.N, count)))
		if err != nil {
			return nil, err
		}
		if len(raw) < tile.W*tlog.HashSize {
			return nil, errors.New("a tile is too narrow")
		}
		found = append(found, raw[:tile.W*tlog.HashSize])
	}
	return found, nil
}

func (t *tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// tail is the end of a path in the tree of tiles: C2SP tlog-tiles.
func tail(index, count int64) string {
	path := fmt.Sprintf("%03d", index%1000)
	for rest := index / 1000; rest > 0; rest /= 1000 {
		path = fmt.Sprintf("x%03d/%s", rest%1000, path)
	}
	if width := count - index*256; width < 256 {
		path = fmt.Sprintf("%s.p/%d", path, width)
	}
	return path
}

func min(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
