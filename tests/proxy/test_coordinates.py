"""Which questions ask for a place in px; the phrasings were written down before the rule."""

from __future__ import annotations

from arr_coc.proxy.coordinates import asks_for_coordinates
from each import each

ASKING = (
    "Where is the Save button? Answer with x, y.",
    "Click on the search field. Return the coordinates as (x, y).",
    "Give me the bounding box of the total.",
    "Return the pixel coordinates of the login button.",
    'Output JSON: {"x": ..., "y": ...} for the menu icon.',
    "Locate the dog and report its bbox as [x1, y1, x2, y2].",
    "Point to the red car.",
    "Where should I click to log out?",
    "In the screenshot, click the 'Submit' button.",
    "What are the coordinates of the blue button in the image?",
    "Output only the coordinate of one point in your response. What element matches: settings",
    "Detect all faces and return bounding boxes in [ymin, xmin, ymax, xmax] format.",
    "Give the position in pixels of the cursor.",
    "Outline the position of each dish and output all the bbox coordinates in JSON format.",
    "Which pixel should be tapped to open the settings?",
    "Tap the heart icon.",
    "Draw a box around the price: give its corners as x0,y0,x1,y1.",
    "Return box_2d for the signature.",
    "Gib die Koordinaten des Knopfes als x, y an.",
    "Ground the phrase: the man with the hat. Use normalized coordinates 0-1000.",
    "At which x and y is the close icon?",
    "Provide the click position for the next page.",
    "Segment the cat; polygons as lists of points.",
    "How many pixels from the left is the logo?",
    "Double-click the folder named Taxes.",
    "Drag the slider to 50 %: give start and end points (x,y).",
    "pyautogui.click(?) - fill in the arguments for the OK button",
    "Reply with <point>x y</point> for the cart.",
    # Written down after the rule's first version, which missed ten of them.
    "Give me the exact x/y location of the checkbox.",
    "Find the close icon and tell me where it is in pixels.",
    "What's the center point of the play button?",
    "Output the action: click(x=?, y=?)",
    "Return (left, top, width, height) for the table.",
    "Show me where the error is with a rectangle, [x, y, w, h].",
    "Respond with the coords of the trash icon.",
    "Mark the location of the submit control; JSON keys left, top, right, bottom.",
    "Please left click the play control.",
    "Where do I have to tap to pay?",
    "Localise every car: one box per line as x0 y0 x1 y1.",
    "What are the coords (px) of the search bar?",
    "Move the mouse to the OK button.",
    # What a control says, without quotes; these were missed.
    "Click on Save changes",
    "Now click Delete account.",
    "Open the menu, then tap on Settings.",
    "Please click OK.",
)
PLAIN = (
    "What are the coordinates printed below the map?",
    "Which GPS coordinates does the ticket show?",
    "What happens if I click on Save?",
    "Who coordinates the project?",
    "What are the coordinates of the summit written in the legend?",
    "What is x in the equation?",
    "What are the values on the x axis and y axis?",
    "How many clicks did the ad get?",
    "How much does the gift box cost?",
    "What is the point of the second paragraph?",
    "What does the button in the box say?",
    "How many points did Lyon get?",
    "What is the click-through rate?",
    "Which box is ticked?",
    "What is the resolution in pixels of the camera?",
    "Which link does the text say to click?",
    "What latitude and longitude are given for the station?",
    "Who is the press contact and their P.O. box?",
    "Solve for x and y.",
    "What is the y-intercept of the line?",
    "When was the position filled?",
    "What is printed in the top right corner?",
    "Read the JSON in the terminal: what is the value of y?",
    "What did the coordinator write?",
    "What is the minimum spend to tap with the card?",
    "How many points is question 3 worth?",
    "At which point does the chart peak?",
    "What is the grid reference of the campsite?",
    "Describe the chart with x as years and y as rentals.",
    # The same; it took ten of them for requests.
    "Click here to read more: what does the link next to it cost?",
    "What does the tap water cost?",
    "Press releases: which is the newest?",
    "Hover text: what does it say?",
    "Point to point trains: when does the first leave?",
    "Drag queens perform when?",
    "Use the coordinates given to name the town.",
    "What position does Lyon hold in the table?",
    "Click rates by month: which is the highest?",
    "Tap water: is it free?",
    "What does the x,y plot show?",
    "Give the coordinates in the table for Berlin.",
    "What price is in the box at the bottom left?",
    "Who drew the polygon on the cover?",
)


MISSED = (  # the rule knows neither
    "I want to press the blue button, where is it on screen?",
    "Select the second checkbox.",
)


@each("question", ASKING)
def test_it_asks_for_a_place(question: str) -> None:
    assert asks_for_coordinates(question)
    assert asks_for_coordinates(f"{question.upper()}\nThanks.")


@each("question", PLAIN)
def test_it_asks_for_none(question: str) -> None:
    assert not asks_for_coordinates(question)
    assert not asks_for_coordinates(f"Here is a page. {question}")


@each("question", MISSED)
def test_what_it_is_known_to_miss(question: str) -> None:
    """So that the docs' word on it stays true."""
    assert not asks_for_coordinates(question)
