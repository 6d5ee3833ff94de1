// A piece of a work folder and its seal: two bytes for the length of the seal, the seal, the piece.
#include <span>
#include <string>

#include "fuzz/folder.h"
#include "fuzz/target.h"
#include "io/piece_file.h"

using namespace bw;

BW_FUZZ_TARGET(piece, input) {
  using State = io::PieceDir::State;
  static const fuzz::Folder folder;
  static const io::PieceDir dir(folder.path());
  constexpr const char* kName = "x.piece";
  fuzz::Reader reader(input);
  const auto seal_bytes = reader.take<uint16_t>();
  folder.write("x.piece.seal", reader.take_bytes(seal_bytes));
  folder.write(kName, reader.rest());
  fuzz::require(dir.check(kName, "key") != State::kAbsent, "a seal is not seen");
  if (dir.check(kName, "key") == State::kWhole) {
    fuzz::require(dir.check(kName, "another") == State::kOther, "a seal for any key");
    folder.write(kName, std::string(reader.rest()) + 'x');
    fuzz::require(dir.check(kName, "key") == State::kDamaged, "a seal for other bytes");
    folder.write(kName, reader.rest());
  }
  io::PieceReader piece(dir, kName);
  while (true) {  // until the error that the piece has ended
    uint32_t value = 0;
    piece.read_values(std::span(&value, 1));
  }
}
